#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/parallel/group.h"

namespace tundish::parallel {

/// A tensor-parallel group whose ranks are threads of this process. Sums in rank order on every
/// rank, so all ranks get the same bits.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size);

  /// The group as rank `rank` sees it. Keeps a reference to this, which outlives it.
  std::shared_ptr<TensorParallelGroup> ForRank(int rank);

  int size() const { return size_; }
  /// All-reduces done so far, as rank 0 counts them.
  int reductions() const { return reductions_; }

 private:
  class Member;

  const int size_;
  std::barrier<> barrier_;
  std::vector<at::Tensor> inputs_;
  int reductions_ = 0;
};

/// Runs `body(slot)` on `degree` threads, each with the slot of its rank, bound; returns when all
/// ended. An exception on any rank is rethrown (peers that wait for it would hang: bodies fail
/// together or not at all).
void RunRanks(int degree, const std::function<void(GroupSlot&)>& body);

}  // namespace tundish::parallel
