#include "worker/agent/store_relay.h"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "runtime/rpc/status.h"

namespace tundish::agent {

namespace asio = boost::asio;

namespace {

/// Time for a restart of the coordinator, on top of what a call itself waits.
constexpr std::chrono::seconds kSlack{60};
constexpr uint32_t kLongestWaitMs = 600'000;
constexpr std::chrono::milliseconds kRetryAfter{50};

}  // namespace

std::chrono::system_clock::time_point StoreDeadline(std::chrono::system_clock::time_point now,
                                                    std::chrono::system_clock::time_point callers,
                                                    const v1::StoreRequest& request) {
  const uint32_t wait_ms = std::min(request.get().timeout_ms(), kLongestWaitMs);
  return std::min(callers, now + std::chrono::milliseconds(wait_ms) + kSlack);
}

StoreRelay::StoreRelay(asio::io_context& io, Call call)
    : io_(io), call_(std::move(call)), retry_(io) {}

StoreRelay* StoreRelay::Start(asio::io_context& io, Call call) {
  auto relay = std::shared_ptr<StoreRelay>(new StoreRelay(io, std::move(call)));
  relay->self_ = relay;
  asio::post(io, [relay] { relay->Admit(); });
  return relay.get();
}

void StoreRelay::Admit() {
  const absl::Status admitted = call_.admit();
  if (!admitted.ok()) return Finish(rpc::ToGrpc(admitted));
  Attempt();
}

void StoreRelay::Attempt() {
  if (cancelled_) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(call_.deadline);
  context_->set_wait_for_ready(true);
  call_.stub->async()->RendezvousStore(
      context_.get(), call_.request, call_.reply, [self = self_](grpc::Status status) {
        asio::post(self->io_, [self, status = std::move(status)] { self->OnAnswer(status); });
      });
}

void StoreRelay::OnAnswer(const grpc::Status& status) {
  context_ = nullptr;
  const bool lost = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (!lost || cancelled_ || call_.request->op_case() == v1::StoreRequest::kAdd ||
      std::chrono::system_clock::now() + kRetryAfter >= call_.deadline) {
    return Finish(status);
  }
  call_.reply->Clear();
  retry_.expires_after(kRetryAfter);
  // Ended by the timer or, early, by a cancellation: either way Attempt() looks what holds.
  retry_.async_wait([self = self_](boost::system::error_code) { self->Attempt(); });
}

void StoreRelay::OnCancel() {
  asio::post(io_, [self = self_] {
    self->cancelled_ = true;
    self->retry_.cancel();
    if (self->context_ != nullptr) self->context_->TryCancel();
  });
}

void StoreRelay::OnDone() {
  // On the loop, where the handlers above run.
  asio::post(io_, [self = std::move(self_)] {});
}

}  // namespace tundish::agent
