#pragma once

#include <filesystem>
#include <vector>

namespace tundish::bench {

struct ScaleOptions {
  std::filesystem::path tundishd;
  std::filesystem::path scratch;
  std::vector<int> agents = {100, 300, 1000, 2000, 5000, 10000};
  double seconds = 10;
  /// Restart bench.
  int jobs = 10'000;
};

/// Processor time and memory of tundishd by number of agents at two heartbeats per second, and the
/// first number at which it could not keep them. Non-zero if an agent was lost below that.
int BenchAgents(const ScaleOptions& options);

/// SIGKILL with `jobs` journaled jobs and `agents.front()` agents: how long until it answers again,
/// and until every agent is back. Non-zero if a job is missing afterwards.
int BenchRestart(const ScaleOptions& options);

}  // namespace tundish::bench
