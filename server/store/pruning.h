#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "server/store/sqlite.h"

namespace tundish::store {

/// Takes old updates out of a job's stream. What goes leaves a `dropped` range with the reason in
/// its place, so that no reader meets a gap nobody explains.
struct PruneRequest {
  std::string job_id;
  /// Only updates older than this.
  std::chrono::system_clock::time_point before;
  /// Metric points of every n-th step stay; 0: none does.
  std::uint32_t keep_every_step = 0;
  /// Log lines stay.
  bool keep_logs = true;
  /// Events stay, whatever their age. The newest update of a job always does.
  bool keep_events = true;
  /// "down_sampling" or "retention".
  std::string reason;
  /// Begin behind this seq, and look at no more than so many rows: a long job takes several calls,
  /// and commits go on in between.
  std::uint32_t after_seq = 0;
  int most_rows = 2000;
};

struct PruneResult {
  /// Where the next call goes on.
  std::uint32_t through_seq = 0;
  /// Updates taken out.
  int removed = 0;
  /// Nothing older is left behind `through_seq`.
  bool done = false;
};

/// In a transaction of its own. Errors as SqliteError; nothing is changed then.
absl::StatusOr<PruneResult> Prune(Database& database, const PruneRequest& request);

/// Removes every row of a job but its audit rows.
absl::Status ForgetJob(Database& database, const std::string& job_id);

/// Removes audit rows older than `before`, at most some thousands at a time.
absl::Status PruneAudit(Database& database, std::chrono::system_clock::time_point before);

}  // namespace tundish::store
