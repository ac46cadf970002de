#include "tests/worker/engine/parallel/thread_group.h"

#include <exception>
#include <thread>

#include <c10/core/GradMode.h>

namespace tundish::parallel {

class ThreadGroup::Member final : public TensorParallelGroup {
 public:
  Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size_; }

  void AllReduceSum(at::Tensor& tensor) override {
    const c10::AutoGradMode no_grad(false);
    group_.inputs_[static_cast<size_t>(rank_)] = tensor;
    group_.barrier_.arrive_and_wait();
    at::Tensor sum = group_.inputs_[0].clone();
    for (int i = 1; i < size(); ++i) sum.add_(group_.inputs_[static_cast<size_t>(i)]);
    group_.barrier_.arrive_and_wait();
    tensor.copy_(sum);
    group_.inputs_[static_cast<size_t>(rank_)].reset();
    if (rank_ == 0) ++group_.reductions_;
  }
  void AllGather(const at::Tensor& input, at::Tensor& output) override;
  void ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override;

 private:
  ThreadGroup& group_;  // The test keeps it until the threads are joined.
  const int rank_;
};

void ThreadGroup::Member::AllGather(const at::Tensor& input, at::Tensor& output) {
  const c10::AutoGradMode no_grad(false);
  group_.inputs_[static_cast<size_t>(rank_)] = input;
  group_.barrier_.arrive_and_wait();
  for (int i = 0; i < size(); ++i) output[i].copy_(group_.inputs_[static_cast<size_t>(i)]);
  group_.barrier_.arrive_and_wait();
  group_.inputs_[static_cast<size_t>(rank_)].reset();
}

void ThreadGroup::Member::ReduceScatterSum(const at::Tensor& input, at::Tensor& output) {
  const c10::AutoGradMode no_grad(false);
  group_.inputs_[static_cast<size_t>(rank_)] = input;
  group_.barrier_.arrive_and_wait();
  output.copy_(group_.inputs_[0][rank_]);
  for (int i = 1; i < size(); ++i) output.add_(group_.inputs_[static_cast<size_t>(i)][rank_]);
  group_.barrier_.arrive_and_wait();
  group_.inputs_[static_cast<size_t>(rank_)].reset();
}

ThreadGroup::ThreadGroup(int size)
    : size_(size), barrier_(size), inputs_(static_cast<size_t>(size)) {}

std::shared_ptr<TensorParallelGroup> ThreadGroup::ForRank(int rank) {
  return std::make_shared<Member>(*this, rank);
}

void RunRanks(int degree, const std::function<void(GroupSlot&)>& body) {
  ThreadGroup group(degree);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(degree));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < degree; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        GroupSlot slot(rank, degree);
        slot.Bind(group.ForRank(rank));
        body(slot);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tundish::parallel
