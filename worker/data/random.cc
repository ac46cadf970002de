#include "worker/data/random.h"

#include "runtime/base/check.h"

namespace tundish::data {
namespace {

// Multipliers and Weyl increments of the paper's table 2 and section 3.4.
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

CounterRandom::CounterRandom(uint64_t seed, Purpose purpose, uint64_t position)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, static_cast<uint32_t>(purpose), static_cast<uint32_t>(position),
               static_cast<uint32_t>(position >> 32)} {}

uint32_t CounterRandom::NextBits() {
  if (used_ == 4) {
    block_ = Philox4x32(counter_, key_);
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
