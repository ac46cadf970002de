#pragma once

#include <filesystem>

namespace tundish::bench {

struct StreamOptions {
  std::filesystem::path tundishd;
  std::filesystem::path scratch;
  int readers = 200;
  int ranks = 32;
  double steps_per_second = 10;
  double seconds = 20;
};

/// Time from the moment the last rank's report of a step leaves its agent until each reader has its
/// metric point, with and without one reader that takes nothing. Non-zero if a reader misses an
/// update that no range explains.
int BenchStreams(const StreamOptions& options);

}  // namespace tundish::bench
