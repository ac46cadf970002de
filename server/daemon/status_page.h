#pragma once

#include <string>

#include "tundish/v1/job_service.pb.h"
#include "tundish/v1/node.pb.h"

namespace tundish::daemon {

/// The page for people at "/": nodes and jobs, as plain HTML without scripts. Everything that came
/// from outside is escaped.
std::string StatusPage(const v1::ListJobsResponse& jobs, const v1::ListNodesResponse& nodes);

}  // namespace tundish::daemon
