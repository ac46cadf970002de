#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "worker/engine/parallel/group.h"

namespace tundish::parallel {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// True when nobody else can see the tensor's memory, so that it may be overwritten.
bool IsPrivate(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous();
}

struct CopyToGroupBackward : public Node {
  std::shared_ptr<TensorParallelGroup> group;

  variable_list apply(variable_list&& gradients) override {
    // An undefined gradient would skip the collective on this rank only and hang the others.
    TORCH_CHECK(gradients.size() == 1 && gradients[0].defined(),
                "a tensor-parallel layer got no gradient");
    at::Tensor gradient = std::move(gradients[0]);
    if (!IsPrivate(gradient)) gradient = gradient.clone(at::MemoryFormat::Contiguous);
    group->AllReduceSum(gradient);
    return {std::move(gradient)};
  }

  std::string name() const override { return "CopyToGroupBackward"; }
};

struct ReduceFromGroupBackward : public Node {
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "ReduceFromGroupBackward"; }
};

/// `output` becomes the result of `node` applied to `input`.
void Record(const at::Tensor& input, at::Tensor& output, std::shared_ptr<Node> node) {
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(output, node);
}

}  // namespace

at::Tensor CopyToGroup(const at::Tensor& x, const GroupSlot& slot) {
  if (slot.size() == 1 || !torch::autograd::compute_requires_grad(x)) return x;
  at::Tensor y = x.detach();
  auto node = std::make_shared<CopyToGroupBackward>();
  node->group = slot.group();
  Record(x, y, std::move(node));
  return y;
}

at::Tensor ReduceFromGroup(at::Tensor x, const GroupSlot& slot) {
  if (slot.size() == 1) return x;
  at::Tensor y = x.detach();
  {
    const c10::AutoGradMode no_grad(false);
    y = y.contiguous();
    slot.group()->AllReduceSum(y);
  }
  if (torch::autograd::compute_requires_grad(x)) {
    Record(x, y, std::make_shared<ReduceFromGroupBackward>());
  }
  return y;
}

}  // namespace tundish::parallel
