#include "worker/agent/coordinator_stream.h"

#include <boost/asio/post.hpp>

#include "runtime/base/check.h"

namespace tundish::agent {

namespace asio = boost::asio;

CoordinatorStream::CoordinatorStream(asio::any_io_executor executor, Callbacks callbacks)
    : executor_(std::move(executor)), callbacks_(std::move(callbacks)) {}

std::shared_ptr<CoordinatorStream> CoordinatorStream::Open(v1::NodeService::StubInterface& stub,
                                                           asio::any_io_executor executor,
                                                           Callbacks callbacks) {
  auto stream = std::shared_ptr<CoordinatorStream>(
      new CoordinatorStream(std::move(executor), std::move(callbacks)));
  stream->self_ = stream;
  stub.async()->Connect(&stream->context_, stream.get());
  stream->AddHold();
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

void CoordinatorStream::Write(v1::AgentMessage message) {
  TUNDISH_CHECK(!busy());
  writing_ = true;
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
}

void CoordinatorStream::FinishWriting() {
  if (ended_ || finishing_) return;
  finishing_ = true;
  if (!writing_) StartWritesDone();
}

void CoordinatorStream::Cancel() {
  context_.TryCancel();
}

void CoordinatorStream::EndOnLoop() {
  if (std::exchange(ended_, true)) return;
  if (writing_)
    context_.TryCancel();  // A peer that has finished reads no more: the write would hang.
  RemoveHold();
}

void CoordinatorStream::OnReadDone(bool ok) {
  asio::post(executor_, [self = self_, ok] {
    if (!ok) return self->EndOnLoop();
    if (self->callbacks_.on_message) self->callbacks_.on_message(self->incoming_);
    self->incoming_.Clear();
    if (!self->ended_) self->StartRead(&self->incoming_);
  });
}

void CoordinatorStream::OnWriteDone(bool ok) {
  asio::post(executor_, [self = self_, ok] {
    self->writing_ = false;
    if (!ok) return self->EndOnLoop();
    if (self->ended_) return;
    if (self->finishing_) return self->StartWritesDone();
    if (self->callbacks_.on_written) self->callbacks_.on_written();
  });
}

void CoordinatorStream::OnDone(const grpc::Status& status) {
  asio::post(executor_, [self = std::move(self_), status] {
    if (auto on_done = std::exchange(self->callbacks_, {}).on_done) on_done(status);
  });
}

}  // namespace tundish::agent
