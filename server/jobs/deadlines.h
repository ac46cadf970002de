#pragma once

#include "server/jobs/context.h"
#include "server/jobs/job.h"

namespace tundish::jobs {

/// Acts on every limit that has passed: ranks that do not come up, do not answer a Stop, or do not
/// leave are killed; of ranks that make no progress the least advanced one is, and where none is
/// behind all are stopped, since a hung one will not answer. Call now and then.
void CheckDeadlines(Job& job, Context& context);

}  // namespace tundish::jobs
