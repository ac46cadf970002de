#pragma once

#include <memory>
#include <mutex>

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
};

/// The group of a model that is not cut.
class SoloGroup final : public TensorParallelGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void AllReduceSum(at::Tensor&) override {}
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

}  // namespace tundish::parallel
