#pragma once

#include <string>
#include <vector>

#include "server/jobs/job.h"
#include "server/scheduler/scheduler.h"

namespace tundish::jobs {

/// What a job that starts, recovers or gives its devices back is waiting for, rank by rank, for
/// people: "rank dp=0 tp=1 has no device: of 4 cpu devices none is free, 2 more on drained host-b".
/// Empty when it waits for nothing.
std::string WhatItWaitsFor(const Job& job, const std::vector<scheduler::NodeView>& nodes, Now now);

}  // namespace tundish::jobs
