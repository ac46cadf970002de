#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "client/link/coordinator.h"

namespace tundish::client {

/// Shows a job's stream until the job ends: JobUpdate lines (`json`) or, for people, progress and
/// at the end what the job came to. Returns the exit code: kSuccess, or kFailed for a job that
/// ended FAILED or CANCELLED, which one line on standard error explains. Notices of a lost
/// coordinator go to standard error. Errors: as FollowJob.
absl::StatusOr<int> ShowJob(Coordinator& coordinator, const v1::WatchJobRequest& request,
                            bool json);

/// For FollowCallbacks::notice: one line on standard error.
void PrintNotice(const std::string& text);

/// The job with this id or prefix.
absl::StatusOr<v1::Job> GetJob(Coordinator& coordinator, const std::string& job_id);

}  // namespace tundish::client
