#pragma once

#include <string>
#include <vector>

#include "server/scheduler/types.h"

namespace tundish::scheduler {

/// Everything a decision looks at, for callers that keep no Scheduler.
struct Input {
  Time now;
  std::vector<PendingJob> pending;
  std::vector<NodeView> nodes;
};

struct Waiting {
  std::string job_id;
  WaitCode code = WaitCode::kDevicesBusy;
  std::string reason;
};

/// Every pending job is in exactly one of the two.
struct Verdict {
  std::vector<Start> starts;
  std::vector<Waiting> waiting;
};

/// One decision of a Scheduler that is told all of `input` anew; of running jobs it knows only that
/// their devices are not free, so nobody is back-filled without a limit and nobody yields.
Verdict DecideAll(const Input& input);

}  // namespace tundish::scheduler
