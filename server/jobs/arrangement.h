#pragma once

#include <chrono>

#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "server/partitioner/partitioner.h"
#include "tundish/v1/rank.pb.h"

// How the ranks of a job come together: processes are ordered, collected (Ready or Stopped),
// brought to a cut, assigned, and form their groups. docs/recovery.md has the protocol.
namespace tundish::jobs {

/// Takes the places: PENDING → PLANNED → STARTING, processes ordered for job_epoch 1.
void PlaceJob(Job& job, const partitioner::Placement& placement, Context& context);

/// Puts a fresh process into the member's slot, on the devices it names; after a pause where the
/// last ones ended before they were in an arrangement.
void StartMember(Job& job, Member& member, Context& context);
/// Orders the processes whose pause is over.
void StartHeldBack(Job& job, Context& context);
v1::CoordinatorMessage StartWorkerOrder(const Job& job, const Member& member);

/// Orders the member's process to be killed; `cause` explains the exit that follows.
void KillMember(Job& job, Member& member, const std::string& cause, Context& context);

/// Puts the next job_epoch in preparation: fences the one in force and stops every member that has
/// been assigned. Goes on in MaybeDecide() when all have answered.
void BeginCollection(Job& job, Context& context);

/// How long a member may take to answer a Stop: stop_limit, or three times the longest of the job's
/// last steps where that is longer; step_deadline_seconds at most.
std::chrono::steady_clock::duration StopLimit(const Job& job, const Settings& settings);

/// Asks all ranks to stop after a step they agree on. Goes on in OnStopped.
void AskToYield(Job& job, Context& context);

/// Orders the member to stop and awaits its answer.
void StopMember(Job& job, Member& member, Context& context);

/// Writes the members into the arrangement in preparation.
void StoreArrangement(Job& job, Context& context);

/// Publishes that training goes on from `step`, below what was published already.
void EmitRewound(Job& job, uint32_t step, const std::string& reason, Context& context);

/// If every member is Ready or Stopped: decides the cut, stores the arrangement, assigns.
void MaybeDecide(Job& job, Context& context);

/// The member's assignment in the arrangement in force, again after its agent was away.
v1::CoordinatorMessage AssignOrder(const Job& job, const Member& member, const Context& context);
/// An empty order of that job_epoch to the member's process.
v1::CoordinatorMessage OrderFor(const Job& job, const Member& member, uint32_t job_epoch);
v1::CoordinatorMessage YieldOrder(const Job& job, const Member& member);
v1::CoordinatorMessage StopOrder(const Job& job, const Member& member);
v1::CoordinatorMessage ExitOrder(const Job& job, const Member& member);
v1::CoordinatorMessage ResendOrder(const Job& job, const Member& member);

void OnReady(Job& job, Member& member, const v1::Ready& ready, Context& context);
/// Also when nobody asked: then the member's collective failed.
void OnStopped(Job& job, Member& member, const v1::RankReport& report, Context& context);
void OnFormed(Job& job, Member& member, const v1::RankReport& report, Context& context);

/// Moves STARTING or RECOVERING to RUNNING once every member is past the start of the arrangement.
void MaybeRunning(Job& job, Context& context);

/// Ranks made progress: the limit for hangs starts again.
void MoveProgressLimit(Job& job, const Context& context);

}  // namespace tundish::jobs
