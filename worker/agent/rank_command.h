#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/identity.h"
#include "runtime/process/spawn.h"
#include "tundish/v1/agent_state.pb.h"
#include "worker/agent/state_dir.h"

namespace tundish::agent {

/// What the arguments of a rank's process begin with: no other process has them.
std::vector<std::string> FirstArguments(const std::string& process_id, const StateDir& state);

/// The value of `flag` among `arguments`; empty if it is not there.
std::string ValueOf(std::string_view flag, const std::vector<std::string>& arguments);

/// Starts the process of `record`: a worker's or a spare's.
process::Command RankCommand(const v1::WorkerRecord& record, const std::string& binary,
                             const StateDir& state);

/// Notes which process it is.
void SetProcess(const process::Identity& identity, v1::WorkerRecord& record);

}  // namespace tundish::agent
