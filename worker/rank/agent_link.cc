#include "worker/rank/agent_link.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>
#include <spdlog/spdlog.h>

namespace tundish::rank {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{1000};

}  // namespace

std::shared_ptr<grpc::Channel> OpenAgentChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // An assignment carries the data report.
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

/// One life of the stream. Everything but the callbacks' entry is guarded by the link's mutex.
class AgentLink::Attachment final : public grpc::ClientBidiReactor<v1::RankReport, v1::RankOrder> {
 public:
  explicit Attachment(AgentLink& link) : link_(link) {}

  void Begin() {
    // Waiting for the agent to come back is gRPC's, which is woken when the socket answers.
    context_.set_wait_for_ready(true);
    link_.stub_->async()->Attach(&context_, this);
    outgoing_ = link_.MakeHello();
    writing_ = true;
    StartRead(&incoming_);
    StartWrite(&outgoing_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void PumpLocked() {
    if (writing_ || failed_) return;
    const v1::RankReport* next = link_.log_.TakeNext();
    if (next == nullptr) return;
    outgoing_ = *next;
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;  // OnDone follows.
    heard_ = true;
    link_.HandleOrder(incoming_);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(link_.mutex_);
    writing_ = false;
    failed_ = failed_ || !ok;
    PumpLocked();
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(link_.mutex_);
    status_ = status;
    done_ = true;
    link_.changed_.notify_all();
  }

  bool done() const { return done_; }
  bool heard() const { return heard_; }
  const grpc::Status& status() const { return status_; }

 private:
  AgentLink& link_;  // Owns this, and waits for OnDone before it lets go.
  grpc::ClientContext context_;
  v1::RankReport outgoing_;
  v1::RankOrder incoming_;
  bool writing_ = false;
  bool failed_ = false;
  bool heard_ = false;
  bool done_ = false;
  grpc::Status status_;
};

AgentLink::AgentLink(std::shared_ptr<grpc::Channel> channel, Identity identity,
                     std::function<void(const v1::RankOrder&)> on_order,
                     std::function<void(const std::string&)> on_refused, size_t most_reports)
    : stub_(v1::RankService::NewStub(channel)),
      on_order_(std::move(on_order)),
      on_refused_(std::move(on_refused)),
      identity_(std::move(identity)),
      log_(most_reports) {}

AgentLink::~AgentLink() {
  Close();
}

void AgentLink::Start() {
  supervisor_ = std::thread([this] { Supervise(); });
}

void AgentLink::Report(v1::RankReport report) {
  // Log lines come with their sink locked: logging from here would wait for itself.
  const bool may_log = !report.has_log();
  bool say = false;
  {
    const std::lock_guard lock(mutex_);
    if (identity_.spare) return;
    report.set_worker_id(identity_.worker_id);
    report.set_job_id(identity_.job_id);
    log_.Append(std::move(report));
    say = may_log && log_.given_up() > 0 && !std::exchange(said_given_up_, log_.given_up() > 0);
    if (attachment_) attachment_->PumpLocked();
  }
  // Outside the lock: log lines are reports, too.
  if (say) {
    spdlog::warn(
        "event=reports_given_up kept={} reason=\"nobody acknowledges reports; the oldest step "
        "reports and log lines are dropped from here on\"",
        kMostReports);
  }
}

void AgentLink::Close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (attachment_) attachment_->Cancel();
  }
  changed_.notify_all();
  if (supervisor_.joinable()) supervisor_.join();
}

void AgentLink::Supervise() {
  milliseconds pause = kFirstPause;
  std::unique_lock lock(mutex_);
  while (!closing_) {
    log_.Rewind();
    attachment_ = std::make_unique<Attachment>(*this);
    attachment_->Begin();
    changed_.wait(lock, [this] { return attachment_->done(); });
    const std::unique_ptr<Attachment> ended = std::move(attachment_);
    if (closing_) return;
    pause = ended->heard() ? kFirstPause : std::min(2 * pause, kLongestPause);
    const grpc::Status status = ended->status();
    lock.unlock();
    if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
      on_refused_(status.error_message());
      return;
    }
    spdlog::warn("event=agent_lost code={} error=\"{}\" retry_ms={}",
                 static_cast<int>(status.error_code()), status.error_message(), pause.count());
    lock.lock();
    changed_.wait_for(lock, pause, [this] { return closing_; });
  }
}

void AgentLink::HandleOrder(const v1::RankOrder& order) {
  switch (order.body_case()) {
    case v1::RankOrder::kAck: {
      const std::lock_guard lock(mutex_);
      log_.AckUpTo(order.ack().number());
      return;
    }
    case v1::RankOrder::kResend: {
      const std::lock_guard lock(mutex_);
      log_.Rewind();
      if (attachment_) attachment_->PumpLocked();
      return;
    }
    case v1::RankOrder::BODY_NOT_SET:
      return;
    case v1::RankOrder::kBecome: {
      const std::lock_guard lock(mutex_);
      identity_ = {.worker_id = order.worker_id(),
                   .job_id = order.job_id(),
                   .secret = order.become().secret()};
    }
      [[fallthrough]];
    default:
      on_order_(order);
  }
}

Identity AgentLink::identity() const {
  const std::lock_guard lock(mutex_);
  return identity_;
}

v1::RankReport AgentLink::MakeHello() const {
  v1::RankReport hello;
  hello.set_worker_id(identity_.worker_id);
  hello.set_job_id(identity_.job_id);
  hello.mutable_hello()->set_secret(identity_.secret);
  hello.mutable_hello()->set_pid(static_cast<uint32_t>(getpid()));
  return hello;
}

}  // namespace tundish::rank
