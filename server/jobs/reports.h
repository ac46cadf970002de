#pragma once

#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "tundish/v1/rank.pb.h"

// What ranks report, and what of it readers see.
namespace tundish::jobs {

/// One report of a current member. Handles each number once and in order: a duplicate is
/// acknowledged again, a report beyond a gap is left and everything unacknowledged asked for again.
/// Exact: a report is taken if and only if its sender kept nothing between it and the last one
/// taken (RankReport.after), so nothing is lost but what the rank itself gave up.
void OnReport(Job& job, Member& member, const v1::RankReport& report, Context& context);

/// Takes up a report that a stored progress holds, at a restart.
void RestoreReport(Job& job, const v1::RankReport& report);

}  // namespace tundish::jobs
