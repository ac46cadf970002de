#pragma once

#include <chrono>
#include <functional>
#include <map>
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
  /// advance, or after restart_grace where that is later.
  std::chrono::milliseconds lost_after{2'000};
  /// A member that does not answer a Stop for this long, or longer if its job's steps are long (see
  /// StopLimit), is killed.
  std::chrono::milliseconds stop_limit{5'000};
  /// A rank process that has not reported Ready is killed.
  std::chrono::milliseconds start_limit{60'000};
  /// A rank that was told to leave and has not is killed; so is, again, one that was killed and is
  /// still there.
  std::chrono::milliseconds exit_limit{10'000};
  /// How long agents may take to come back after a restart of the coordinator before their hosts
  /// can be lost.
  std::chrono::milliseconds restart_grace{10'000};
  /// A node whose data interface its peers reach at less than this gets no ranks. 0: any rate will
  /// do.
  double least_link_bytes_per_second = 10e6;
  /// A node that was not heard of for this long, has no ranks and is not drained is forgotten.
  std::chrono::hours forget_node_after{24};
  /// Metric points older than this are thinned out: those of every `keep_every_step`-th step stay.
  std::chrono::hours thin_metrics_after{7 * 24};
  uint32_t keep_every_step = 10;
  /// An ended job keeps metric points and logs for this long, and its record and events for that.
  std::chrono::hours keep_history{90 * 24};
  std::chrono::hours keep_jobs{365 * 24};
  std::chrono::hours keep_audit{365 * 24};
  /// Bytes of checkpoints and models a tenant may keep, 0: any; and other numbers for some tenants.
  uint64_t artifact_budget = 0;
  std::map<std::string, uint64_t> artifact_budgets;
  /// Free bytes on the state's disk below which no new work is taken: what is left is for the jobs
  /// that run.
  uint64_t reserve_bytes = 64 << 20;
  /// Bytes one reader of a stream may leave unread before it loses metrics and logs.
  size_t reader_bound_bytes = 4 << 20;
  /// Bytes of changes waiting for the disk beyond which reports are left to be sent again.
  size_t backlog_bound_bytes = 32 << 20;
};

}  // namespace tundish::jobs
