#pragma once

#include <chrono>

namespace tundish::agent {

/// How long to wait before attempt `failures` + 1 of reaching the coordinator: doubles from 50 ms
/// to 2 s, scaled into its upper half by `random` in [0, 1), so that agents that lost the same
/// coordinator do not come back at the same instant.
std::chrono::milliseconds Backoff(int failures, double random);

}  // namespace tundish::agent
