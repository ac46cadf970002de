#pragma once

#include <string>
#include <string_view>

#include "server/jobs/context.h"
#include "server/jobs/job.h"

// How a job gives its devices back and loses no step: its ranks stop after a step all agree on (or
// at the cut, where a failure is in the way), survivors write a checkpoint unless there is one of
// that very step, processes leave, and the job is PENDING: docs/recovery.md, "Parking".
namespace tundish::jobs {

enum class YieldReason {
  kPreempted,
  kDrained,
  /// Held afterwards: PENDING, and placed again only after LetGoOn.
  kPaused,
  kStopped,
  /// It lacks devices, and others may wait for those it has.
  kDevicesMissing,
};

/// "preempted", "drained", "paused", "stopped", "devices_missing".
std::string_view YieldReasonName(YieldReason reason);

/// Asks the job to give its devices back with its state kept: PREEMPTED once a checkpoint holds it,
/// PENDING when its processes are gone; placed again it goes on from that checkpoint under a higher
/// job_epoch. `message`: for whom or what, one sentence. Durable with the caller's change; asking
/// again changes nothing. False if there is nothing to give back: the job has ended, is leaving, or
/// has no ranks (one that pauses is held all the same). A job that ends its last step first
/// succeeds instead; one that cannot write goes on, with event "yield_failed".
bool RequestYield(Job& job, YieldReason reason, const std::string& message, Context& context);

/// Ends the hold of a paused job.
void LetGoOn(Job& job, Context& context);

/// Every member that lives has been asked to stop for parking: goes on as far as their answers
/// allow. In place of MaybeDecide while the job is parking.
void MaybePark(Job& job, Context& context);

/// An answer to Save.
void OnSaved(Job& job, Member& member, const v1::Stopped& stopped, Context& context);

/// After a restart of the coordinator or an agent: says again what the member has to do for
/// parking.
void RepeatParkingOrder(Job& job, const Member& member, Context& context);

/// PENDING once no process is left; call when one has left.
void MaybePending(Job& job, Context& context);

}  // namespace tundish::jobs
