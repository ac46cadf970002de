#include "worker/agent/backoff.h"

#include <algorithm>

namespace tundish::agent {

std::chrono::milliseconds Backoff(int failures, double random) {
  constexpr double kFirstMs = 50;
  constexpr double kLongestMs = 2000;
  const double full =
      std::min(kLongestMs, kFirstMs * static_cast<double>(1u << std::min(failures, 10)));
  return std::chrono::milliseconds(static_cast<int>(full * (0.5 + random / 2)));
}

}  // namespace tundish::agent
