#pragma once

#include <array>
#include <cstdint>

namespace tundish::random {

/// Philox4x32-10: ten rounds over a 128-bit counter with a 64-bit key. A pure function, so any
/// element of a stream can be made without the ones before it; equal bits on every machine. Source:
/// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace tundish::random
