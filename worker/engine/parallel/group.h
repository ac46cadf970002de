#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tundish::parallel {

/// The ranks that share one replica of the model, as the model sees them.
/// Called by one thread at a time (the rank's training thread; on GPUs also autograd's thread).
class TensorParallelGroup {
 public:
  virtual ~TensorParallelGroup() = default;

  /// This rank's index in the group, 0 to size() - 1.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Replaces `tensor` (contiguous, same shape and dtype on every rank) by its sum over the group,
  /// in place. All ranks receive the same bits. Returns when the result is there (on CPU) or
  /// enqueued (on streams). Throws when a peer is lost or the group was aborted.
  virtual void AllReduceSum(at::Tensor& tensor) = 0;

  /// `output` [size, ...] becomes the ranks' `input`s [...], in rank order. Both contiguous. Else
  /// as AllReduceSum.
  virtual void AllGather(const at::Tensor& input, at::Tensor& output) = 0;

  /// `output` [...] becomes this rank's part of the sum over the group of `input` [size, ...]. Both
  /// contiguous; `input` is left alone. Else as AllReduceSum.
  virtual void ReduceScatterSum(const at::Tensor& input, at::Tensor& output) = 0;
};

/// The group of a model that is not cut.
class SoloGroup final : public TensorParallelGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void AllReduceSum(at::Tensor&) override {}
  void AllGather(const at::Tensor& input, at::Tensor& output) override;
  void ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override;
};

/// The place where a model finds its current group. The model outlives its groups: after a recovery
/// the trainer binds the new arrangement's group and the model goes on. Coordinates never change,
/// since they decide which slice of the weights the rank holds. Thread-safe.
class GroupSlot {
 public:
  /// Unbound for size > 1; bound to a SoloGroup for size 1. Requires 0 <= rank < size.
  GroupSlot(int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Makes `group` the current one. Requires the slot's own rank and size.
  void Bind(std::shared_ptr<TensorParallelGroup> group);

  /// Drops the current group (not for size 1). A collective in flight keeps its own reference.
  void Unbind();

  /// The current group. Throws c10::Error when unbound.
  std::shared_ptr<TensorParallelGroup> group() const;

 private:
  const int rank_;
  const int size_;
  mutable std::mutex mutex_;
  std::shared_ptr<TensorParallelGroup> group_;
};

/// Megatron's f: identity forward, sum over the group backward. Stands before column-parallel
/// layers, whose input gradients are partial sums. Backward uses the group that was bound at
/// forward time, so a graph built in an old arrangement never talks to a new one. Source: Shoeybi
/// et al. 2019, arXiv:1909.08053, section 3.
at::Tensor CopyToGroup(const at::Tensor& x, const GroupSlot& slot);

/// Megatron's g: sum over the group forward, identity backward. Stands after row-parallel layers.
/// Consumes `x`: its memory is overwritten with the sum, so `x` must be a fresh result that no
/// backward formula has saved (a matmul's output is one).
at::Tensor ReduceFromGroup(at::Tensor x, const GroupSlot& slot);

/// Tokens each rank of a group of `size` keeps of `tokens`: ceil(tokens / size). The last rank's
/// last ones may be padding, which nothing reads.
int64_t LocalTokens(int64_t tokens, int size);

/// Sequence parallelism's g: `x_bsd` [b, s, d], equal on all ranks → this rank's tokens [b, k, d],
/// k = LocalTokens(s); padding is zero. Backward: this rank's part of the gradient, zero elsewhere,
/// so that gradients of what made `x_bsd` are partial.
at::Tensor SliceTokens(const at::Tensor& x_bsd, const GroupSlot& slot);

/// `x_bkd`, this rank's tokens → all tokens [b, tokens, d], equal on all ranks, padding dropped.
/// With `sum`, backward sums the ranks' gradients before it hands each its own (reduce-scatter):
/// for readers that differ from rank to rank, such as column-parallel layers. Without, it takes
/// this rank's part: for readers that do the same on every rank. Source: Korthikanti et al. 2022,
/// arXiv:2205.05198, section 4.2.2.
at::Tensor GatherTokens(const at::Tensor& x_bkd, int64_t tokens, bool sum, const GroupSlot& slot);

/// Stands after row-parallel layers under sequence parallelism: partial sums [b, s, d] → this
/// rank's tokens of their sum over the group [b, k, d] (reduce-scatter). Backward: all-gather.
at::Tensor ReduceScatterTokens(const at::Tensor& x_bsd, const GroupSlot& slot);

/// `x` [..., d / t], this rank's channels → [..., d] on all ranks. `sum` as for GatherTokens.
at::Tensor GatherChannels(const at::Tensor& x, bool sum, const GroupSlot& slot);

/// Sums tensors over the group: `tensors` become views of one new tensor, what they were stays as
/// it is. One collective, so all ranks pass the same shapes in the same order.
void SumOverGroup(std::vector<at::Tensor*> tensors, const GroupSlot& slot);

}  // namespace tundish::parallel
