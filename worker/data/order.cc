#include "worker/data/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "worker/data/random.h"
#include "worker/random/philox.h"

namespace tundish::data {
namespace {

// Four rounds are enough in theory for large halves; small data sets have halves of a few bits,
// where more rounds cost nothing that matters and mix better.
constexpr uint32_t kRounds = 10;

// Key of the shuffle of weighted samples; no data epoch reaches it.
constexpr uint32_t kShuffle = 0xFFFFFFFF;
constexpr double kWeightUnits = 1 << 30;

uint32_t Mask(int bits) {
  return (uint32_t{1} << bits) - 1;
}

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, uint32_t samples, const std::vector<double>& weights,
                         uint32_t repeats)
    : seed_(seed), samples_(samples), repeats_(repeats) {
  TUNDISH_CHECK(weights.empty() || weights.size() == samples);
  TUNDISH_CHECK(repeats >= 1);
  TUNDISH_CHECK(samples >= 1 && samples <= (uint32_t{1} << 31));
  // At least two bits, so that both halves have one.
  const int bits = std::max(2, static_cast<int>(std::bit_width(samples - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  if (weights.empty()) return;
  const double largest = *std::ranges::max_element(weights);
  uint64_t end = 0;
  ends_.reserve(samples);
  for (uint32_t place = 0; place < samples; ++place) {
    const double share = weights[Permute(place, kShuffle)] / largest;
    TUNDISH_CHECK(share > 0);
    end += std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(share * kWeightUnits)));
    ends_.push_back(end);
  }
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

uint32_t SampleOrder::Permute(uint32_t value, uint32_t data_epoch) const {
  // A permutation of the power of two, followed until it comes back below n, is one of [0, n).
  do {
    value = PermuteOnce(value, data_epoch);
  } while (value >= samples_);
  return value;
}

uint32_t SampleOrder::IndexAt(uint64_t position) const {
  const uint64_t visit = position / repeats_;
  const auto data_epoch = static_cast<uint32_t>(visit / samples_);
  const uint32_t slot = Permute(static_cast<uint32_t>(visit % samples_), data_epoch);
  return ends_.empty() ? slot : WeightedIndex(slot, data_epoch);
}

uint32_t SampleOrder::WeightedIndex(uint32_t slot, uint32_t data_epoch) const {
  constexpr uint32_t kGoldenRatio = 2654435769;  // Its fraction, times 2^32.
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_),
                                       static_cast<uint32_t>(seed_ >> 32)};
  const uint32_t start = random::Philox4x32(
      {0, static_cast<uint32_t>(Purpose::kSampleOrder), kShuffle, kShuffle}, key)[0];
  const uint32_t offset = start + data_epoch * kGoldenRatio;  // Modulo 2^32.
  const auto point =
      (static_cast<unsigned __int128>(uint64_t{slot} << 32 | offset) * ends_.back() / samples_) >>
      32;
  const auto place = std::ranges::upper_bound(ends_, static_cast<uint64_t>(point));
  return Permute(static_cast<uint32_t>(place - ends_.begin()), kShuffle);
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
