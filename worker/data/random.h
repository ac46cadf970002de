#pragma once

#include <array>
#include <cstdint>

namespace tundish::data {

/// What numbers are drawn for: streams of different purposes never share a counter. The values are
/// part of the meaning of a seed and never change; new purposes get new numbers.
enum class Purpose : uint32_t {
  kSampleOrder = 1,
  kAugmentation = 2,
  kMix = 20,
};

/// The random numbers of one (seed, purpose, position): e.g. all the draws that augment the sample
/// at `position` of the global order. Two equal triples give equal sequences. Not thread safe;
/// cheap to make (no allocation), so make one where it is used.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, Purpose purpose, uint64_t position);

  /// Uniform over all 32-bit values.
  uint32_t NextBits();
  /// Uniform in [0, 1), a multiple of 2^-24.
  float NextUniform();
  /// Uniform in [low, high).
  float NextUniform(float low, float high);
  /// Uniform in [0, n), unbiased. n > 0.
  uint32_t NextBelow(uint32_t n);
  /// True with probability 1/2.
  bool NextBool();

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace tundish::data
