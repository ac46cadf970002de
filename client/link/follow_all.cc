#include "client/link/follow_all.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

namespace tundish::client {
namespace {

using Clock = std::chrono::system_clock;

/// The cursors of a stream that may break.
class AllFollower {
 public:
  AllFollower(Coordinator& coordinator, v1::WatchAllRequest request,
              const FollowAllCallbacks& callbacks)
      : coordinator_(coordinator), request_(std::move(request)), callbacks_(callbacks) {
    for (const v1::JobCursor& cursor : request_.after()) seen_[cursor.job_id()] = cursor.seq();
  }

  /// Reads one stream to its end. `*any` is set if anything came.
  grpc::Status StreamOnce(bool* any, absl::Status* explained) {
    request_.clear_after();
    for (const auto& [job_id, seq] : seen_) {
      v1::JobCursor& cursor = *request_.add_after();
      cursor.set_job_id(job_id);
      cursor.set_seq(seq);
    }
    grpc::ClientContext context;  // No deadline: it lasts as long as the reader.
    const auto reader = coordinator_.jobs().WatchAll(&context, request_);
    v1::WatchAllResponse response;
    while (reader->Read(&response)) {
      *any = true;
      if (std::exchange(said_lost_, false)) {
        callbacks_.notice(fmt::format("the coordinator at {} is back", coordinator_.address()));
      }
      for (const v1::JobCursor& cursor : response.began()) seen_[cursor.job_id()] = cursor.seq();
      // Where the first stream began is known: what is new from now on is wanted from its start.
      request_.set_from_now(false);
      for (const v1::WatchedJob& job : response.jobs()) Deliver(job);
    }
    const grpc::Status status = reader->Finish();
    *explained = coordinator_.Explain(status, context);
    return status;
  }

  void SayLost(std::chrono::milliseconds patience) {
    if (std::exchange(said_lost_, true)) return;
    callbacks_.notice(
        fmt::format("lost the coordinator at {}; trying again for {} s", coordinator_.address(),
                    std::chrono::duration_cast<std::chrono::seconds>(patience).count()));
  }

 private:
  void Deliver(const v1::WatchedJob& job) {
    uint32_t& seen = seen_[job.job_id()];
    for (const v1::JobUpdate& update : job.updates()) {
      const uint32_t last =
          update.has_dropped() ? std::max(update.seq(), update.dropped().last()) : update.seq();
      if (last <= seen) continue;
      seen = last;
      callbacks_.update(job.job_id(), update);
    }
  }

  Coordinator& coordinator_;  // The caller's, as callbacks_; both outlive this.
  v1::WatchAllRequest request_;
  const FollowAllCallbacks& callbacks_;
  std::map<std::string, uint32_t> seen_;
  bool said_lost_ = false;
};

}  // namespace

absl::Status FollowAll(Coordinator& coordinator, v1::WatchAllRequest request,
                       const FollowAllCallbacks& callbacks, std::chrono::milliseconds patience) {
  AllFollower follower(coordinator, std::move(request), callbacks);
  auto give_up = Clock::now() + patience;
  for (;;) {
    bool any = false;
    absl::Status explained;
    const grpc::StatusCode code = follower.StreamOnce(&any, &explained).error_code();
    const bool interrupted =
        code == grpc::StatusCode::OK || code == grpc::StatusCode::UNAVAILABLE ||
        code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::INTERNAL ||
        code == grpc::StatusCode::UNKNOWN;
    if (!interrupted) return explained;
    const auto now = Clock::now();
    if (any) give_up = now + patience;
    if (now >= give_up) return explained;
    follower.SayLost(patience);
    if (!coordinator.channel().WaitForConnected(give_up)) return explained;
    // It listens but ended the stream: the delay spares it.
    if (!any) {
      coordinator.channel().WaitForStateChange(GRPC_CHANNEL_READY,
                                               now + std::chrono::milliseconds(500));
    }
  }
}

}  // namespace tundish::client
