#pragma once

#include <bit>
#include <cstdint>

#include "tundish/v1/rank.pb.h"

namespace tundish::trainer {

/// fp32 values travel as bit patterns in v1::StepSums, so that nothing is rounded on the way.
inline float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t ToBits(float value) {
  return std::bit_cast<uint32_t>(value);
}

/// The global gradient norm: root of the slots' sum, added in double in index order, so that every
/// rank, and a rank that commits with sums it was sent, gets the same bits. Throws FatalError when
/// a slot is unknown.
double GlobalNorm(const v1::StepSums& sums, int tensor_degree);

/// Loss of the global batch: weighted sum over samples / sum of weights.
double GlobalLoss(const v1::StepSums& sums);

/// True when some rank had been asked to yield: all stop after this step.
bool YieldWanted(const v1::StepSums& sums);

/// True when no rank saw an infinite or undefined value.
bool AllFinite(const v1::StepSums& sums);

}  // namespace tundish::trainer
