#pragma once

#include <cstdint>

namespace tundish::metrics {

/// What this process uses.
struct ProcessUsage {
  uint64_t resident_bytes = 0;
  /// User and system time since its start.
  double cpu_seconds = 0;
};

/// Asks the kernel (/proc/self/statm, getrusage). A value it does not give is 0. Thread-safe.
ProcessUsage ReadProcessUsage();

}  // namespace tundish::metrics
