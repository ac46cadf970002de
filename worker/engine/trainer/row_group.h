#pragma once

#include <memory>
#include <utility>

#include "worker/engine/device/backend.h"
#include "worker/engine/parallel/group.h"

namespace tundish::trainer {

/// An arrangement's row as the model sees it.
class RowGroup final : public parallel::TensorParallelGroup {
 public:
  RowGroup(std::shared_ptr<device::Communicator> row, int rank, int size)
      : row_(std::move(row)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void AllReduceSum(at::Tensor& tensor) override { row_->AllReduceSum(tensor); }
  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    row_->AllGather(input, output);
  }
  void ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
    row_->ReduceScatterSum(input, output);
  }

 private:
  // Shared: a graph of a cut step may hold this a little longer than the arrangement does.
  std::shared_ptr<device::Communicator> row_;
  int rank_;
  int size_;
};

}  // namespace tundish::trainer
