#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

#include "client/link/coordinator.h"

namespace tundish::client {

/// True for SUCCEEDED, FAILED and CANCELLED.
bool IsTerminal(v1::JobState state);

struct FollowCallbacks {
  /// Each update, once, in order.
  std::function<void(const v1::JobUpdate&)> update;
  /// One sentence when the coordinator is lost and when it is back.
  std::function<void(const std::string&)> notice;
};

/// Delivers a job's updates after `request.after_seq` until the job has ended (or, with
/// `replay_only`, until what is stored has been delivered), and returns the job's state then. A
/// lost coordinator is waited for up to `patience` since the last sign of it, then the stream goes
/// on behind the last delivered update: no gap, no duplicate. Blocks; the callbacks run on the
/// caller's thread. Errors: as Coordinator::Explain; Unavailable once `patience` is over.
absl::StatusOr<v1::JobState> FollowJob(
    Coordinator& coordinator, v1::WatchJobRequest request, const FollowCallbacks& callbacks,
    std::chrono::milliseconds patience = std::chrono::minutes(1));

}  // namespace tundish::client
