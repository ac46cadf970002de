#include <utility>
#include <vector>

#include "worker/engine/device/backend.h"

namespace tundish::device {

c10d::Backend& Communicator::backend() const {
  // The backend itself rather than the group: no trip through the dispatcher per collective.
  return *group()->getDefaultBackend();
}

void Communicator::AllReduceSum(at::Tensor tensor) {
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().allreduce(tensors)->wait();
}

void Communicator::Send(at::Tensor tensor, int to) {
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().send(tensors, to, 0)->wait();
}

void Communicator::Receive(at::Tensor tensor, int from) {
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().recv(tensors, from, 0)->wait();
}

}  // namespace tundish::device
