#pragma once

#include "server/jobs/context.h"
#include "server/jobs/job.h"

// StepDone reports of all ranks → metric points. A point is published when every member has
// committed its step or a cut covers it, so none is ever withdrawn.
namespace tundish::jobs {

/// Files a StepDone report under its step. False if the step is published or cut off already, or is
/// further ahead than ranks that wait for each other can be.
bool FileStep(Job& job, int slot, const v1::RankReport& report);

/// Publishes every point that is due, in order.
void PublishPoints(Job& job, Context& context);

/// Training goes on after `step` committed steps: publishes what the cut covers, then forgets later
/// reports. True if published points lie at or above it.
bool CutPoints(Job& job, uint32_t step, Context& context);

/// The loss is of the whole batch; times are the slowest rank's.
v1::MetricPoint MakePoint(const Job& job, uint32_t step, const StepReports& reports);

/// Seconds left, from the median of the last step times; 0 when none is known.
double EstimateRemaining(const std::vector<double>& recent_step_seconds, uint32_t steps_left);

}  // namespace tundish::jobs
