#pragma once

#include <chrono>

#include "server/jobs/context.h"
#include "server/jobs/job.h"

namespace tundish::jobs {

/// Acts on every limit that has passed: ranks that do not come up, do not answer a Stop, or do not
/// leave are killed; of ranks that make no progress the least advanced one is, and where none is
/// behind all are stopped, since a hung one will not answer. Call now and then.
void CheckDeadlines(Job& job, Context& context);

/// True if news of the job's ranks can come: the agent of at least one of them is there.
bool CanBeHeard(const Job& job, const Context& context);

/// Instead of CheckDeadlines while ranks cannot be heard or what they say cannot be taken: `passed`
/// does not count for what is awaited of single ranks, and the limit for hangs starts again.
void HoldLimits(Job& job, std::chrono::steady_clock::duration passed, const Context& context);

}  // namespace tundish::jobs
