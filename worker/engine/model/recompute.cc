#include "worker/engine/model/recompute.h"

#include <memory>
#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace tundish::model {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// One thread's autocast of one kind of device, taken and put back.
class Autocast {
 public:
  explicit Autocast(at::DeviceType device)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {}

  void Restore() const {
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  at::DeviceType device() const { return device_; }

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

/// `wanted` for as long as it lives.
class AutocastScope {
 public:
  explicit AutocastScope(const Autocast& wanted) : before_(wanted.device()) {
    wanted.Restore();
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.Restore();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const Autocast before_;
};

struct RecomputeBackward : public Node {
  explicit RecomputeBackward(const Autocast& autocast) : autocast(autocast) {}

  std::function<at::Tensor(const at::Tensor&)> body;
  torch::autograd::SavedVariable input;
  std::vector<at::Tensor> leaves;
  Autocast autocast;

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(gradients.size() == 1 && gradients[0].defined(), "a block got no gradient");
    const c10::AutoGradMode with_grad(true);
    variable_list inputs = {input.unpack().detach().requires_grad_(true)};
    inputs.insert(inputs.end(), leaves.begin(), leaves.end());
    at::Tensor output;
    {
      const AutocastScope scope(autocast);
      output = body(inputs[0]);
    }
    // Captured rather than accumulated here: the outer graph's own edges lead to the parameters, so
    // that hooks on them see one gradient, at its time.
    return torch::autograd::grad({output}, inputs, {gradients[0]});
  }

  void release_variables() override { input.reset_data(); }
  std::string name() const override { return "RecomputeBackward"; }
};

}  // namespace

at::Tensor Recompute(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x,
                     const std::vector<at::Tensor>& leaves) {
  if (!torch::autograd::compute_requires_grad(x)) return body(x);
  auto node = std::make_shared<RecomputeBackward>(Autocast(x.device().type()));
  node->body = body;
  node->input = torch::autograd::SavedVariable(x, /*is_output=*/false);
  node->leaves = leaves;
  at::Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = body(x);
  }
  torch::autograd::edge_list edges = {torch::autograd::impl::gradient_edge(x)};
  for (const at::Tensor& leaf : leaves) edges.push_back(torch::autograd::impl::gradient_edge(leaf));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(y, std::move(node));
  return y;
}

}  // namespace tundish::model
