#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <absl/status/status.h>

#include "client/link/coordinator.h"

namespace tundish::client {

struct FollowAllCallbacks {
  /// Each update of each job, once, in the order of its job.
  std::function<void(const std::string& job_id, const v1::JobUpdate&)> update;
  /// One sentence when the coordinator is lost and when it is back.
  std::function<void(const std::string&)> notice;
};

/// Delivers the updates of every job for ever. A lost coordinator is waited for up to `patience`,
/// then every job's stream goes on behind its last delivered update. Blocks; the callbacks run on
/// the caller's thread. Returns only with an error: as Coordinator::Explain; Unavailable once
/// `patience` is over.
absl::Status FollowAll(Coordinator& coordinator, v1::WatchAllRequest request,
                       const FollowAllCallbacks& callbacks,
                       std::chrono::milliseconds patience = std::chrono::minutes(1));

}  // namespace tundish::client
