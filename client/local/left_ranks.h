#pragma once

#include <string>

namespace tundish::client {

/// Kills the ranks that an agent which no longer runs left behind: the processes that the records
/// in `agent_state_dir` (`workers/ID/record.pb`, WorkerRecord) name and that are still the same.
/// Returns when they have ended; one line for people, empty if there were none. The records stay,
/// so that the next agent can tell the coordinator how its ranks ended. Does nothing while an agent
/// has the folder: the ranks are that agent's.
std::string KillLeftRanks(const std::string& agent_state_dir);

}  // namespace tundish::client
