#pragma once

#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "tundish/v1/rank.pb.h"

// Whether the ranks of a job come further.
namespace tundish::jobs {

/// A rank told how far it is: by itself when its phase changed, or asked.
void OnProgress(Job& job, Member& member, const v1::RankReport& report, const Context& context);

/// Does what DecideHang says: asks, kills the ranks that hang, or stops all. Call now and then.
void CheckHang(Job& job, Context& context);

}  // namespace tundish::jobs
