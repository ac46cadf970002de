#include "worker/agent/coordinator_link.h"

#include <algorithm>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "worker/agent/backoff.h"

namespace tundish::agent {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kReportBoundBytes = 64 << 20;
constexpr std::chrono::seconds kRegisterLimit{10};

std::chrono::milliseconds HeartbeatInterval(const v1::RegisterReply& reply) {
  return std::chrono::milliseconds(std::clamp(reply.heartbeat_interval_ms(), 50u, 60'000u));
}

}  // namespace

CoordinatorLink::CoordinatorLink(asio::io_context& io, v1::NodeService::StubInterface& stub,
                                 std::string node, std::string incarnation, Callbacks callbacks)
    : io_(io),
      stub_(stub),
      node_(std::move(node)),
      incarnation_(std::move(incarnation)),
      callbacks_(std::move(callbacks)),
      queue_(kReportBoundBytes),
      retry_(io),
      heartbeat_(io),
      close_limit_(io),
      random_(std::random_device{}()) {}

void CoordinatorLink::Start() {
  Open();
}

void CoordinatorLink::Open() {
  stream_ = CoordinatorStream::Open(
      stub_, io_.get_executor(),
      {.on_message = [this](const v1::CoordinatorMessage& message) { OnMessage(message); },
       .on_written = [this] { Pump(); },
       .on_done = [this](const grpc::Status& status) { OnDone(status); }});
  v1::AgentMessage message;
  message.set_node(node_);
  message.set_incarnation(incarnation_);
  *message.mutable_register_() = callbacks_.registration();
  for (const v1::WorkerExited& exited : queue_.UntoldExits()) {
    v1::LiveWorker& worker = *message.mutable_register_()->add_workers();
    worker.set_worker_id(exited.worker_id());
    worker.set_job_id(exited.job_id());
  }
  stream_->Write(std::move(message));
  heartbeat_interval_ = {};
  ArmHeartbeat(kRegisterLimit);
}

void CoordinatorLink::OnMessage(const v1::CoordinatorMessage& message) {
  if (!message.has_register_reply()) {
    if (!closing_) callbacks_.on_message(message);
    return;
  }
  heartbeat_interval_ = HeartbeatInterval(message.register_reply());
  failures_ = 0;
  if (!std::exchange(connected_, true)) {
    spdlog::info("event=coordinator_connected node={} incarnation={} coordinator_version={}", node_,
                 incarnation_, message.register_reply().version());
    if (!closing_) callbacks_.on_connected(true);
  }
  ArmHeartbeat(heartbeat_interval_);
  Pump();
}

void CoordinatorLink::OnDone(const grpc::Status& status) {
  stream_ = nullptr;
  heartbeat_.cancel();
  heartbeat_due_ = false;
  queue_.StreamEnded();
  const bool was_connected = std::exchange(connected_, false);
  if (closing_) return FinishClose();
  if (was_connected || failures_ == 0) {  // Once per loss, not per attempt.
    spdlog::warn("event=coordinator_unreachable node={} code={} reason=\"{}\"", node_,
                 static_cast<int>(status.error_code()), status.error_message());
  }
  if (was_connected) callbacks_.on_connected(false);
  // Another agent of this name has taken over: two of them must not chase each other at full speed.
  if (status.error_code() == grpc::StatusCode::ABORTED) failures_ = std::max(failures_, 6);
  const double random = static_cast<double>(random_() - random_.min()) /
                        (1.0 + static_cast<double>(random_.max() - random_.min()));
  retry_.expires_after(Backoff(failures_++, random));
  retry_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled && !closing_) Open();
  });
}

void CoordinatorLink::ArmHeartbeat(std::chrono::milliseconds interval) {
  heartbeat_.expires_after(interval);
  heartbeat_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) OnHeartbeatTimer();
  });
}

void CoordinatorLink::OnHeartbeatTimer() {
  if (stream_ == nullptr) return;
  if (!connected_) {
    spdlog::warn("event=registration_unanswered node={} limit_s={}", node_, kRegisterLimit.count());
    return stream_->Cancel();
  }
  for (const v1::AgentMessage& fact : queue_.TakeSettled(Clock::now())) {
    if (!closing_) callbacks_.on_settled(fact);
  }
  heartbeat_due_ = true;
  ArmHeartbeat(heartbeat_interval_);
  Pump();
}

void CoordinatorLink::Tell(v1::AgentMessage fact, Clock::time_point since) {
  queue_.AddFact(std::move(fact), since);
  Pump();
}

void CoordinatorLink::Answer(v1::AgentMessage answer) {
  if (!connected_) return;
  queue_.AddPassing(std::move(answer));
  Pump();
}

bool CoordinatorLink::Report(v1::RankReport report) {
  if (!connected_) return false;
  if (!queue_.AddReport(std::move(report))) {
    reports_refused_ = true;
    return false;
  }
  Pump();
  return true;
}

void CoordinatorLink::Pump() {
  if (!connected_ || stream_ == nullptr || stream_->busy()) return;
  std::optional<v1::AgentMessage> next = queue_.Next(Clock::now());
  if (!next && heartbeat_due_) {
    next.emplace();
    next->mutable_heartbeat();
  }
  if (next) {
    heartbeat_due_ = false;  // Whatever is written is a sign of life.
    next->set_node(node_);
    next->set_incarnation(incarnation_);
    return stream_->Write(*std::move(next));
  }
  if (closing_) return stream_->FinishWriting();
  if (std::exchange(reports_refused_, false)) callbacks_.on_room();
}

void CoordinatorLink::Close(std::chrono::milliseconds limit, std::function<void()> done) {
  closing_ = true;
  closed_ = std::move(done);
  retry_.cancel();
  if (stream_ == nullptr) return asio::post(io_, [this] { FinishClose(); });
  close_limit_.expires_after(limit);
  close_limit_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled && stream_ != nullptr) stream_->Cancel();
  });
  if (!connected_) return stream_->Cancel();
  Pump();
}

void CoordinatorLink::FinishClose() {
  close_limit_.cancel();
  heartbeat_.cancel();
  if (auto closed = std::exchange(closed_, nullptr)) closed();
}

}  // namespace tundish::agent
