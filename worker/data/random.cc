#include "worker/data/random.h"

#include "runtime/base/check.h"
#include "worker/random/philox.h"

namespace tundish::data {

CounterRandom::CounterRandom(uint64_t seed, Purpose purpose, uint64_t position)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, static_cast<uint32_t>(purpose), static_cast<uint32_t>(position),
               static_cast<uint32_t>(position >> 32)} {}

uint32_t CounterRandom::NextBits() {
  if (used_ == 4) {
    block_ = random::Philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

float CounterRandom::NextUniform() {
  return static_cast<float>(NextBits() >> 8) * 0x1p-24F;
}

float CounterRandom::NextUniform(float low, float high) {
  return low + (high - low) * NextUniform();
}

uint32_t CounterRandom::NextBelow(uint32_t n) {
  TUNDISH_CHECK(n > 0);
  // Values at and above the largest multiple of n would favour small results; draw again.
  const uint64_t limit = (uint64_t{1} << 32) / n * n;
  uint32_t bits = NextBits();
  while (bits >= limit) bits = NextBits();
  return bits % n;
}

bool CounterRandom::NextBool() {
  return (NextBits() >> 31) != 0;
}

}  // namespace tundish::data
