#include <utility>
#include <vector>

#include <ATen/record_function.h>

#include "worker/engine/device/backend.h"

namespace tundish::device {

c10d::Backend& Communicator::backend() const {
  // The backend itself rather than the group: no trip through the dispatcher per collective.
  return *group()->getDefaultBackend();
}

void Communicator::AllReduceSum(at::Tensor tensor) {
  RECORD_USER_SCOPE("all_reduce");
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().allreduce(tensors)->wait();
}

// Flat: Gloo wants the larger tensor's first dim to be the smaller one's times the members.
void Communicator::AllGather(at::Tensor input, at::Tensor output) {
  RECORD_USER_SCOPE("all_gather");
  ++begun_;
  at::Tensor part = input.view({-1});
  at::Tensor all = output.view({-1});
  backend()._allgather_base(all, part, {})->wait();
}

void Communicator::ReduceScatterSum(at::Tensor input, at::Tensor output) {
  RECORD_USER_SCOPE("reduce_scatter");
  ++begun_;
  at::Tensor all = input.view({-1});
  at::Tensor part = output.view({-1});
  backend()._reduce_scatter_base(part, all, {})->wait();
}

void Communicator::Send(at::Tensor tensor, int to) {
  RECORD_USER_SCOPE("send");
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().send(tensors, to, 0)->wait();
}

void Communicator::Receive(at::Tensor tensor, int from) {
  RECORD_USER_SCOPE("receive");
  ++begun_;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  backend().recv(tensors, from, 0)->wait();
}

}  // namespace tundish::device
