#pragma once

#include <string>

#include "server/jobs/context.h"
#include "server/jobs/job.h"

// Fewer replicas when devices are lost, more when they come back, and the end of waiting for them:
// docs/recovery.md, "Shrinking and growing".
namespace tundish::jobs {

/// With nobody left to wait for but empty places: leaves out whole replicas until there are none,
/// if the spec allows it. True if it did; the cut may be decided then. Processes that have no place
/// any more are told to leave.
bool MaybeShrink(Job& job, Context& context);

/// True while it trains with fewer replicas than its spec asks for and nothing hinders it from
/// taking more devices.
bool WantsToGrow(const Job& job, Now now);

/// Starts processes for as many replicas as the free devices give, at most those that are missing.
/// When all are up the ranks are asked to stop after a step they agree on, and go on together.
/// Nothing happens if a replica finds no devices.
void MaybeGrow(Job& job, Context& context);

/// A joining process is up.
void OnJoinerReady(Job& job, Context& context);

/// All joining processes are up: they become members of the arrangement in preparation.
void TakeInJoiners(Job& job, Context& context);

/// Growing is given up, for a while if `failed`: joining processes are told to leave. Theirs is no
/// failure of the job.
void DropJoiners(Job& job, bool failed, Context& context);

/// Joining processes count as members from here on: for a job that ends or gives its devices back.
void JoinersAsMembers(Job& job);

/// Acts on the limit of waiting for devices: the job gives back those it has.
void CheckWait(Job& job, Context& context);

}  // namespace tundish::jobs
