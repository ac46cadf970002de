#pragma once

#include <filesystem>

namespace tundish::bench {

struct SubmitOptions {
  std::filesystem::path tundishd;
  std::filesystem::path scratch;
  double seconds = 10;
  int clients = 64;
};

/// Durable submissions per second beside what the disk gives a caller that syncs each by itself.
int BenchSubmit(const SubmitOptions& options);

/// `kills` times SIGKILL at random moments of the load; then every acknowledged job has to be there
/// once and no request twice. Non-zero if not.
int CheckExactlyOnce(const SubmitOptions& options, int kills);

}  // namespace tundish::bench
