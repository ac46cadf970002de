#pragma once

#include <memory>
#include <string>

#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "tundish/v1/job_service.pb.h"

// Beginning and end of a job.
namespace tundish::jobs {

/// A PENDING job of a resolved spec, with its first event.
std::unique_ptr<Job> NewJob(const std::string& request_id, const v1::JobSpec& resolved,
                            Context& context);

/// The data check of a job that has been given to an agent.
v1::CoordinatorMessage CheckOrder(const Job& job);

/// The answer of the agent that has the check; others are stale and ignored.
void OnDataChecked(Job& job, const v1::TaskResult& result, Context& context);

/// Moves a job that has not ended to `state` (FAILED or CANCELLED) and kills its ranks. Its devices
/// are free when their processes are gone.
void EndJob(Job& job, v1::JobState state, const std::string& reason, const std::string& message,
            Context& context);

/// SUCCEEDED if every member has reported Finished; ranks are told to leave.
void MaybeSucceed(Job& job, Context& context);

/// A process of a job that has ended or gives its devices back is gone.
void OnLeavingMemberGone(Job& job, Member& member, Context& context);

}  // namespace tundish::jobs
