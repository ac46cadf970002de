#include "worker/data/decode_threads.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>
#include <thread>

namespace tundish::data {
namespace {

/// Cores' worth of CPU time the cgroup allows; 0 when it sets no limit.
double CgroupCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

}  // namespace

int UsableCores() {
  auto cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) cores = CPU_COUNT(&mask);
  if (const double quota = CgroupCores(); quota > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  }
  return std::max(1, cores);
}

int DecodeThreads(int cores, int ranks_on_host, int compute_threads) {
  constexpr int kMost = 32;
  const int share = cores / std::max(1, ranks_on_host);
  return std::clamp(share - compute_threads, 1, kMost);
}

}  // namespace tundish::data
