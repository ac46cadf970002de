#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tundish::jobs {

/// Both clocks, read together: `wall` for what people see, `steady` for limits.
struct Now {
  std::chrono::system_clock::time_point wall;
  std::chrono::steady_clock::time_point steady;
};

using Clock = std::function<Now()>;

/// Limits of the core. The defaults are the product's; tests shorten them.
struct Settings {
  /// Absolute; where ranks write checkpoints and models.
  std::string artifact_root;
  /// Asked of agents.
  std::chrono::milliseconds heartbeat_interval{500};
  /// A node from which nothing was heard for this long is unreachable.
  std::chrono::milliseconds unreachable_after{2'000};
  /// An unreachable node is lost this long after it was last heard, unless its ranks' peers
  /// advance. Also the grace in which agents may come back after a restart of the coordinator.
  std::chrono::milliseconds lost_after{10'000};
  /// A member that does not answer a Stop for this long, or longer if its job's steps are long (see
  /// StopLimit), is killed.
  std::chrono::milliseconds stop_limit{5'000};
  /// A rank process that has not reported Ready is killed.
  std::chrono::milliseconds start_limit{60'000};
  /// A rank that was told to leave and has not is killed; so is, again, one that was killed and is
  /// still there.
  std::chrono::milliseconds exit_limit{10'000};
  /// Bytes one reader of a stream may leave unread before it loses metrics and logs.
  size_t reader_bound_bytes = 4 << 20;
  /// Bytes of changes waiting for the disk beyond which reports are left to be sent again.
  size_t backlog_bound_bytes = 32 << 20;
};

}  // namespace tundish::jobs
