#pragma once

#include <filesystem>

namespace tundish::bench {

struct FuzzOptions {
  std::filesystem::path tundishd;
  std::filesystem::path scratch;
  double seconds = 10;
  unsigned seed = 1;
  /// Most resident memory tundishd may ever have had.
  double most_mib = 768;
};

/// Calls every method of every service with malformed and extreme messages. Non-zero if tundishd died,
/// grew beyond the bound, answered with a code that says its handler failed, or cannot load afterwards
/// what it wrote.
int FuzzRpcs(const FuzzOptions& options);

}  // namespace tundish::bench
