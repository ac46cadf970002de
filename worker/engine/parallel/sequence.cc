#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "worker/engine/parallel/group.h"

namespace tundish::parallel {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// [b, s, d] with zeros behind up to [b, padded, d].
at::Tensor PadTokens(const at::Tensor& x_bsd, int64_t padded) {
  const int64_t missing = padded - x_bsd.size(1);
  return missing == 0 ? x_bsd : at::constant_pad_nd(x_bsd, {0, 0, 0, missing});
}

/// The members' parts of `dim`, side by side.
at::Tensor GatherAlong(const at::Tensor& part, int64_t dim, TensorParallelGroup& group) {
  std::vector<int64_t> shape = part.sizes().vec();
  shape.insert(shape.begin(), group.size());
  at::Tensor gathered = at::empty(shape, part.options().requires_grad(false));
  group.AllGather(part.contiguous(), gathered);
  // [t, .., part, ..] → [.., t, part, ..] → [.., t x part, ..]
  return gathered.movedim(0, dim).flatten(dim, dim + 1);
}

/// This member's part of `dim` of the sum of `x`, whose extent there is a multiple of the size.
at::Tensor ReduceScatterAlong(const at::Tensor& x, int64_t dim, TensorParallelGroup& group) {
  const int64_t part = x.size(dim) / group.size();
  const at::Tensor by_rank = x.unflatten(dim, {group.size(), part}).movedim(dim, 0).contiguous();
  at::Tensor sum = at::empty(by_rank.sizes().slice(1), by_rank.options().requires_grad(false));
  group.ReduceScatterSum(by_rank, sum);
  return sum;
}

at::Tensor OnlyGradient(variable_list& gradients) {
  // An undefined gradient would skip the collective on this rank only and hang the others.
  TORCH_CHECK(gradients.size() == 1 && gradients[0].defined(),
              "a sequence-parallel layer got no gradient");
  return std::move(gradients[0]);
}

/// Of a gather along `dim` that dropped everything from `kept` on.
struct GatherBackward : public Node {
  std::shared_ptr<TensorParallelGroup> group;
  int64_t dim = 0;
  int64_t part = 0;
  bool sum = false;

  variable_list apply(variable_list&& gradients) override {
    at::Tensor gradient = OnlyGradient(gradients);
    if (dim == 1) gradient = PadTokens(gradient, part * group->size());
    if (sum) return {ReduceScatterAlong(gradient, dim, *group)};
    return {gradient.narrow(dim, group->rank() * part, part)};
  }
  std::string name() const override { return "GatherBackward"; }
};

struct ReduceScatterTokensBackward : public Node {
  std::shared_ptr<TensorParallelGroup> group;
  int64_t tokens = 0;

  variable_list apply(variable_list&& gradients) override {
    return {GatherAlong(OnlyGradient(gradients), 1, *group).narrow(1, 0, tokens)};
  }
  std::string name() const override { return "ReduceScatterTokensBackward"; }
};

template <class Backward>
at::Tensor Record(const at::Tensor& input, at::Tensor output, std::shared_ptr<Backward> node) {
  if (!torch::autograd::compute_requires_grad(input)) return output;
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(output, std::move(node));
  return output;
}

at::Tensor Gather(const at::Tensor& x, int64_t dim, int64_t kept, bool sum, const GroupSlot& slot) {
  auto node = std::make_shared<GatherBackward>();
  node->group = slot.group();
  node->dim = dim;
  node->part = x.size(dim);
  node->sum = sum;
  at::Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    y = GatherAlong(x, dim, *node->group).narrow(dim, 0, kept).contiguous();
  }
  return Record(x, std::move(y), std::move(node));
}

}  // namespace

int64_t LocalTokens(int64_t tokens, int size) {
  return (tokens + size - 1) / size;
}

at::Tensor SliceTokens(const at::Tensor& x_bsd, const GroupSlot& slot) {
  if (slot.size() == 1) return x_bsd;
  const int64_t local = LocalTokens(x_bsd.size(1), slot.size());
  return PadTokens(x_bsd, local * slot.size()).narrow(1, slot.rank() * local, local).contiguous();
}

at::Tensor GatherTokens(const at::Tensor& x_bkd, int64_t tokens, bool sum, const GroupSlot& slot) {
  return slot.size() == 1 ? x_bkd : Gather(x_bkd, 1, tokens, sum, slot);
}

at::Tensor ReduceScatterTokens(const at::Tensor& x_bsd, const GroupSlot& slot) {
  if (slot.size() == 1) return x_bsd;
  auto node = std::make_shared<ReduceScatterTokensBackward>();
  node->group = slot.group();
  node->tokens = x_bsd.size(1);
  at::Tensor y;
  {
    const c10::AutoGradMode no_grad(false);
    const int64_t padded = LocalTokens(node->tokens, slot.size()) * slot.size();
    y = ReduceScatterAlong(PadTokens(x_bsd, padded), 1, *node->group);
  }
  return Record(x_bsd, std::move(y), std::move(node));
}

at::Tensor GatherChannels(const at::Tensor& x, bool sum, const GroupSlot& slot) {
  const int64_t last = x.dim() - 1;
  return slot.size() == 1 ? x : Gather(x, last, x.size(last) * slot.size(), sum, slot);
}

void SumOverGroup(std::vector<at::Tensor*> tensors, const GroupSlot& slot) {
  if (slot.size() == 1 || tensors.empty()) return;
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> flat;
  for (const at::Tensor* tensor : tensors) flat.push_back(tensor->reshape({-1}));
  at::Tensor sums = at::cat(flat);
  slot.group()->AllReduceSum(sums);
  int64_t offset = 0;
  for (at::Tensor* tensor : tensors) {
    const int64_t count = tensor->numel();
    *tensor = sums.narrow(0, offset, count).view(tensor->sizes());
    offset += count;
  }
}

}  // namespace tundish::parallel
