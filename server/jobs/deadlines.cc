#include "server/jobs/deadlines.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/elastic.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/losses.h"
#include "server/jobs/progress.h"

namespace tundish::jobs {
namespace {

std::string OverdueCause(const Job& job, const Member& member) {
  if (!member.kill_cause.empty()) return member.kill_cause;
  if (job.leaving()) return job.ended() ? "job_ended" : "job_released";
  if (member.phase == MemberPhase::kSaving) return "save_deadline";
  return member.phase == MemberPhase::kStarting ? "start_deadline" : "stop_deadline";
}

}  // namespace

void CheckDeadlines(Job& job, Context& context) {
  const bool join_late = std::ranges::any_of(
      job.joiners, [&](const Member& joiner) { return joiner.limit <= context.now.steady; });
  if (join_late) DropJoiners(job, true, context);
  StartHeldBack(job, context);
  for (Member& member : job.members) {
    // While the agent is away nothing can be asked of the rank; its return sets new limits.
    const Node* node = context.nodes.Find(member.node);
    if (node == nullptr || !node->ready()) continue;
    if (!member.alive() || member.limit > context.now.steady) continue;
    if (member.missing) {
      context.nodes.Free(member.node, member.worker_id);
      if (job.leaving()) {
        OnLeavingMemberGone(job, member, context);
        return;  // the members are others now; the rest has its turn with the next tick
      }
      OnMemberGone(job, member, {.cause = "gone"}, context);
      return;  // likewise: the job may have shrunk
    } else {
      KillMember(job, member, OverdueCause(job, member), context);
    }
  }
  CheckHang(job, context);
}

bool CanBeHeard(const Job& job, const Context& context) {
  return std::ranges::any_of(job.members, [&context](const Member& member) {
    const Node* node = context.nodes.Find(member.node);
    return node != nullptr && node->ready();
  });
}

void HoldLimits(Job& job, std::chrono::steady_clock::duration passed, const Context& context) {
  for (Member& member : job.members) {
    if (member.limit != std::chrono::steady_clock::time_point::max()) member.limit += passed;
  }
  MoveProgressLimit(job, context);
}

}  // namespace tundish::jobs
