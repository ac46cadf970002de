#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/jobs/job.h"
#include "server/jobs/settings.h"
#include "server/store/pruning.h"

namespace tundish::jobs {

/// One piece of old state that may go.
struct RetentionTask {
  enum class Kind {
    /// Old metric points are thinned out.
    kThin,
    /// An ended job loses its metric points and logs; its events stay.
    kStrip,
    /// An ended job loses everything.
    kRemove,
  };
  Kind kind = Kind::kThin;
  std::string job_id;
  std::chrono::system_clock::time_point decided;
  /// kThin and kStrip.
  store::PruneRequest prune;
};

/// Walks over the jobs again and again and says what is too old, one small piece at a time, so that
/// the store's other work never waits for long. Decides only; the core acts and reports back.
/// Forgets at a restart how far it was and looks again.
class Retention {
 public:
  using Jobs = std::map<std::string, std::unique_ptr<Job>>;

  /// The next piece, or nothing until some time has passed. A job that has not ended is thinned at
  /// most.
  std::optional<RetentionTask> Next(const Jobs& jobs, Now now, const Settings& settings);

  void OnPruned(const RetentionTask& task, const store::PruneResult& result);
  void OnRemoved(const std::string& job_id);

 private:
  /// How far a job's stream has been gone through.
  struct Mark {
    uint32_t thinned_through = 0;
    uint32_t stripped_through = 0;
    /// Nothing is left to do until then.
    std::chrono::system_clock::time_point thin_again;
    bool stripped = false;
  };

  std::optional<RetentionTask> NextOf(const Job& job, Now now, const Settings& settings);

  std::map<std::string, Mark> marks_;
  /// The walk stands before this job.
  std::string next_job_;
  std::chrono::system_clock::time_point next_walk_;
};

}  // namespace tundish::jobs
