#pragma once

#include <array>
#include <cstdint>

namespace tundish::model {

/// Philox 4x32 with 10 rounds: a counter-based generator, so any draw can be had without the ones
/// before. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace tundish::model
