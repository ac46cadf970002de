#include "worker/data/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/check.h"
#include "worker/data/random.h"
#include "worker/random/philox.h"

namespace tundish::data {
namespace {

// Four rounds are enough in theory for large halves; small data sets have halves of a few bits,
// where more rounds cost nothing that matters and mix better.
constexpr uint32_t kRounds = 10;

uint32_t Mask(int bits) {
  return (uint32_t{1} << bits) - 1;
}

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, uint32_t samples) : seed_(seed), samples_(samples) {
  TUNDISH_CHECK(samples >= 1 && samples <= (uint32_t{1} << 31));
  // At least two bits, so that both halves have one.
  const int bits = std::max(2, static_cast<int>(std::bit_width(samples - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint32_t SampleOrder::PermuteOnce(uint32_t value, uint32_t data_epoch) const {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_),
                                       static_cast<uint32_t>(seed_ >> 32)};
  // Halves may differ in width by one bit, so widths swap along with the halves.
  int left_bits = high_bits_;
  int right_bits = low_bits_;
  uint32_t left = value >> right_bits;
  uint32_t right = value & Mask(right_bits);
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t mixed = random::Philox4x32(
        {right, static_cast<uint32_t>(Purpose::kSampleOrder), data_epoch, round}, key)[0];
    const uint32_t next = left ^ (mixed & Mask(left_bits));
    left = right;
    right = next;
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

uint32_t SampleOrder::IndexAt(uint64_t position) const {
  const uint32_t data_epoch = DataEpochOf(position);
  auto value = static_cast<uint32_t>(position % samples_);
  // A permutation of the power of two, followed until it comes back below n, is one of [0, n).
  do {
    value = PermuteOnce(value, data_epoch);
  } while (value >= samples_);
  return value;
}

uint32_t SampleOrder::DataEpochOf(uint64_t position) const {
  return static_cast<uint32_t>(position / samples_);
}

uint64_t TotalSteps(uint64_t epochs, uint64_t samples, uint64_t global_batch) {
  TUNDISH_CHECK(global_batch > 0);
  return (epochs * samples + global_batch - 1) / global_batch;
}

uint64_t LastStepOfDataEpoch(uint64_t data_epoch, uint64_t samples, uint64_t global_batch) {
  TUNDISH_CHECK(samples > 0);
  return TotalSteps(data_epoch + 1, samples, global_batch) - 1;
}

PositionRange RowSlice(uint64_t step, uint32_t global_batch, uint32_t dp, uint32_t degree) {
  TUNDISH_CHECK(dp < degree);
  const uint64_t first = uint64_t{global_batch} * dp / degree;
  const uint64_t end = uint64_t{global_batch} * (dp + 1) / degree;
  return {step * global_batch + first, static_cast<uint32_t>(end - first)};
}

}  // namespace tundish::data
