#include "server/scheduler/decide_all.h"

#include <utility>

#include "server/scheduler/scheduler.h"

namespace tundish::scheduler {

Verdict DecideAll(const Input& input) {
  Scheduler scheduler;
  for (const NodeView& node : input.nodes) scheduler.PutNode(node, input.now);
  for (PendingJob job : input.pending) {
    if (job.waiting_since == Time()) job.waiting_since = job.submitted;
    scheduler.PutPending(job);
  }
  Verdict verdict{.starts = std::move(scheduler.Decide(input.now).starts)};
  for (const PendingJob& job : input.pending) {
    if (!scheduler.pending(job.job_id)) continue;
    Wait wait = scheduler.Explain(job.job_id, input.now);
    verdict.waiting.push_back({job.job_id, wait.code, std::move(wait.reason)});
  }
  return verdict;
}

}  // namespace tundish::scheduler
