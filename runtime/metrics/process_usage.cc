#include "runtime/metrics/process_usage.h"

#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace tundish::metrics {

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  uint64_t total_pages = 0;
  uint64_t resident_pages = 0;
  if (std::ifstream statm("/proc/self/statm"); statm >> total_pages >> resident_pages) {
    usage.resident_bytes = resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  rusage times{};
  if (getrusage(RUSAGE_SELF, &times) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    usage.cpu_seconds = seconds(times.ru_utime) + seconds(times.ru_stime);
  }
  return usage;
}

}  // namespace tundish::metrics
