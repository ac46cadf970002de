#pragma once

#include <map>
#include <string>

#include "server/jobs/job.h"

namespace tundish::jobs {

/// Which jobs need looking at and why, so that the thousands that have ended, or only wait, cost
/// the loop nothing. Each view is ordered by id, so by age. Jobs outlive it or are forgotten first.
class JobIndex {
 public:
  using Jobs = std::map<std::string, Job*>;

  /// Files the job by what it is now. Call after every change of it.
  void Update(Job& job);
  void Forget(const std::string& job_id);

  /// No agent has their data check yet.
  const Jobs& unchecked() const { return unchecked_; }
  /// PENDING, checked, and not held.
  const Jobs& pending() const { return pending_; }
  const Jobs& recovering() const { return recovering_; }
  /// With rank processes, or slots for them; ended jobs whose processes are not gone yet included.
  const Jobs& placed() const { return placed_; }

 private:
  Jobs unchecked_;
  Jobs pending_;
  Jobs recovering_;
  Jobs placed_;
};

}  // namespace tundish::jobs
