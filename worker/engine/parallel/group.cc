#include "worker/engine/parallel/group.h"

#include <utility>

#include <c10/util/Exception.h>

namespace tundish::parallel {

void SoloGroup::AllGather(const at::Tensor& input, at::Tensor& output) {
  output.copy_(input.view(output.sizes()));
}

void SoloGroup::ReduceScatterSum(const at::Tensor& input, at::Tensor& output) {
  output.copy_(input.view(output.sizes()));
}

GroupSlot::GroupSlot(int rank, int size) : rank_(rank), size_(size) {
  TORCH_CHECK(0 <= rank && rank < size, "tensor rank ", rank, " is not in a group of ", size);
  if (size == 1) group_ = std::make_shared<SoloGroup>();
}

void GroupSlot::Bind(std::shared_ptr<TensorParallelGroup> group) {
  TORCH_CHECK(group && group->rank() == rank_ && group->size() == size_, "the slot is for rank ",
              rank_, " of ", size_, ", the group is for rank ", group ? group->rank() : -1, " of ",
              group ? group->size() : 0);
  const std::lock_guard lock(mutex_);
  group_ = std::move(group);
}

void GroupSlot::Unbind() {
  if (size_ == 1) return;
  std::shared_ptr<TensorParallelGroup> dropped;  // Destroyed outside the lock: it may wait.
  const std::lock_guard lock(mutex_);
  dropped.swap(group_);
}

std::shared_ptr<TensorParallelGroup> GroupSlot::group() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(group_, "no tensor-parallel group is bound for rank ", rank_, " of ", size_);
  return group_;
}

}  // namespace tundish::parallel
