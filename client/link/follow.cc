#include "client/link/follow.h"

#include <algorithm>
#include <optional>

#include <fmt/core.h>

namespace tundish::client {
namespace {

using Clock = std::chrono::system_clock;

/// How a stream ends when its server stops, crashes or is cut off.
bool IsInterruption(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN;
}

class Follower {
 public:
  Follower(Coordinator& coordinator, v1::WatchJobRequest request, const FollowCallbacks& callbacks,
           std::chrono::milliseconds patience)
      : coordinator_(coordinator),
        request_(std::move(request)),
        callbacks_(callbacks),
        patience_(patience),
        give_up_(Clock::now() + patience) {}

  absl::StatusOr<v1::JobState> Run() {
    for (;;) {
      if (absl::Status streamed = StreamOnce(); !streamed.ok()) return streamed;
      if (terminal_) return *terminal_;
      if (!interrupted_) {
        // The server ended the stream without a terminal event: it lies before after_seq, the
        // stream was a replay, or the server is stopping.
        absl::StatusOr<v1::JobState> state = AskState();
        if (state.ok() && (IsTerminal(*state) || request_.replay_only())) return state;
        if (!state.ok() && state.status().code() != absl::StatusCode::kUnavailable) return state;
      }
      if (absl::Status back = AwaitCoordinator(); !back.ok()) return back;
    }
  }

 private:
  /// Reads one stream to its end. OK also for an interruption, see `interrupted_`.
  absl::Status StreamOnce() {
    grpc::ClientContext context;  // No deadline: a stream lasts as long as its job.
    const auto reader = coordinator_.jobs().WatchJob(&context, request_);
    const auto opened = Clock::now();
    v1::WatchJobResponse response;
    while (reader->Read(&response)) {
      SignOfLife();
      for (const v1::JobUpdate& update : response.updates()) Deliver(update);
    }
    const grpc::Status status = reader->Finish();
    interrupted_ = !status.ok();
    // A stream that stood for a while without a word was alive too.
    if (Clock::now() - opened >= kStood) give_up_ = Clock::now() + patience_;
    if (status.ok() || terminal_) return absl::OkStatus();
    last_error_ = coordinator_.Explain(status, context);
    return IsInterruption(status.error_code()) ? absl::OkStatus() : last_error_;
  }

  void Deliver(const v1::JobUpdate& update) {
    const uint32_t last =
        update.has_dropped() ? std::max(update.seq(), update.dropped().last()) : update.seq();
    if (last <= request_.after_seq()) return;  // Delivered before the interruption.
    request_.set_after_seq(last);
    if (update.has_event() && IsTerminal(update.event().state())) {
      terminal_ = update.event().state();
    }
    callbacks_.update(update);
  }

  absl::StatusOr<v1::JobState> AskState() {
    v1::GetJobRequest request;
    request.set_job_id(request_.job_id());
    const absl::StatusOr<v1::Job> job =
        coordinator_.Call(&v1::JobService::StubInterface::GetJob, request);
    if (!job.ok()) {
      last_error_ = job.status();
      return job.status();
    }
    return job->state();
  }

  void SignOfLife() {
    give_up_ = Clock::now() + patience_;
    retry_delay_ = kFirstRetryDelay;
    if (said_lost_) {
      said_lost_ = false;
      callbacks_.notice(fmt::format("the coordinator at {} is back", coordinator_.address()));
    }
  }

  /// Returns when it is worth opening the stream again.
  absl::Status AwaitCoordinator() {
    if (!said_lost_) {
      said_lost_ = true;
      callbacks_.notice(
          fmt::format("lost the coordinator at {}; trying again for {} s", coordinator_.address(),
                      std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
    }
    const auto now = Clock::now();
    if (now >= give_up_) return last_error_;
    grpc::Channel& channel = coordinator_.channel();
    if (channel.GetState(true) == GRPC_CHANNEL_READY) {
      // It listens but ended the stream: the delay spares it, a change of the connection ends it.
      channel.WaitForStateChange(GRPC_CHANNEL_READY, std::min(give_up_, now + retry_delay_));
      retry_delay_ = std::min(2 * retry_delay_, kMostRetryDelay);
      return absl::OkStatus();
    }
    return channel.WaitForConnected(give_up_) ? absl::OkStatus() : last_error_;
  }

  static constexpr std::chrono::seconds kStood{1};
  static constexpr std::chrono::milliseconds kFirstRetryDelay{50};
  static constexpr std::chrono::milliseconds kMostRetryDelay{2'000};

  Coordinator& coordinator_;  // The caller's, as the next one; both outlive Run().
  v1::WatchJobRequest request_;
  const FollowCallbacks& callbacks_;
  const std::chrono::milliseconds patience_;
  Clock::time_point give_up_;
  std::chrono::milliseconds retry_delay_ = kFirstRetryDelay;
  bool interrupted_ = false;
  bool said_lost_ = false;
  std::optional<v1::JobState> terminal_;
  absl::Status last_error_ = absl::UnavailableError("the stream ended before the job");
};

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

absl::StatusOr<v1::JobState> FollowJob(Coordinator& coordinator, v1::WatchJobRequest request,
                                       const FollowCallbacks& callbacks,
                                       std::chrono::milliseconds patience) {
  return Follower(coordinator, std::move(request), callbacks, patience).Run();
}

}  // namespace tundish::client
