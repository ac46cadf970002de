#include "worker/data/order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tundish::data {
namespace {

std::vector<uint32_t> Pass(const SampleOrder& order, uint64_t data_epoch) {
  std::vector<uint32_t> indices;
  for (uint64_t i = 0; i < order.samples(); ++i) {
    indices.push_back(order.IndexAt(data_epoch * order.samples() + i));
  }
  return indices;
}

TEST(SampleOrderTest, EveryPassIsAPermutation) {
  for (const uint32_t samples : {1U, 2U, 3U, 4U, 5U, 16U, 17U, 100U, 1023U, 1024U, 1025U, 2099U}) {
    SCOPED_TRACE(samples);
    std::vector<uint32_t> all(samples);
    std::iota(all.begin(), all.end(), 0U);
    const SampleOrder order(42, samples);
    for (const uint64_t data_epoch : {0, 1, 7}) {
      std::vector<uint32_t> pass = Pass(order, data_epoch);
      std::ranges::sort(pass);
      EXPECT_EQ(pass, all) << "data epoch " << data_epoch;
    }
  }
}

TEST(SampleOrderTest, PassesAndSeedsDiffer) {
  const SampleOrder order(1, 500);
  EXPECT_NE(Pass(order, 0), Pass(order, 1));
  EXPECT_NE(Pass(order, 0), Pass(SampleOrder(2, 500), 0));
  EXPECT_EQ(Pass(order, 3), Pass(SampleOrder(1, 500), 3));
}

TEST(SampleOrderTest, AllPermutationsOfFourAreAboutEquallyLikely) {
  std::map<std::vector<uint32_t>, int> counts;
  const SampleOrder order(5, 4);
  constexpr int kPasses = 24000;
  for (uint64_t data_epoch = 0; data_epoch < kPasses; ++data_epoch)
    ++counts[Pass(order, data_epoch)];
  EXPECT_EQ(counts.size(), 24U);
  for (const auto& [pass, count] : counts) EXPECT_NEAR(count, kPasses / 24, 160);
}

// Computed by an independent program. An order that changed between versions would break every
// resumed job.
TEST(SampleOrderTest, IsTheSameForEver) {
  const SampleOrder order(7, 10);
  EXPECT_EQ(Pass(order, 0), (std::vector<uint32_t>{3, 1, 0, 5, 7, 6, 9, 2, 4, 8}));
}

TEST(TotalStepsTest, CountsTheLastFilledBatch) {
  EXPECT_EQ(TotalSteps(1, 100, 10), 10U);
  EXPECT_EQ(TotalSteps(1, 101, 10), 11U);
  EXPECT_EQ(TotalSteps(3, 101, 10), 31U);
  EXPECT_EQ(TotalSteps(0, 101, 10), 0U);
  EXPECT_EQ(LastStepOfDataEpoch(0, 100, 10), 9U);
  EXPECT_EQ(LastStepOfDataEpoch(1, 101, 10), 20U);
}

TEST(RowSliceTest, SlicesTileTheGlobalBatch) {
  for (const uint32_t batch : {1U, 7U, 32U, 33U}) {
    for (const uint32_t degree : {1U, 2U, 3U, 5U, 8U}) {
      uint64_t next = 4 * uint64_t{batch};
      for (uint32_t dp = 0; dp < degree; ++dp) {
        const PositionRange slice = RowSlice(4, batch, dp, degree);
        EXPECT_EQ(slice.first, next);
        EXPECT_LE(slice.count, batch / degree + 1);
        EXPECT_GE(slice.count, batch / degree);
        next += slice.count;
      }
      EXPECT_EQ(next, 5 * uint64_t{batch});
    }
  }
}

// Case 19: stopped anywhere and resumed at another DP, the ids equal an uninterrupted run's.
TEST(RowSliceTest, ResumedIdsEqualAnUninterruptedRuns) {
  constexpr uint32_t kBatch = 6;
  const SampleOrder order(9, 20);
  const auto ids = [&](uint64_t step, uint32_t degree) {
    std::vector<uint32_t> ids;
    for (uint32_t dp = 0; dp < degree; ++dp) {
      const PositionRange slice = RowSlice(step, kBatch, dp, degree);
      for (uint32_t i = 0; i < slice.count; ++i) ids.push_back(order.IndexAt(slice.first + i));
    }
    return ids;
  };
  for (uint64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(ids(step, 1), ids(step, 2));
    EXPECT_EQ(ids(step, 1), ids(step, 4));
  }
}

TEST(SampleOrderTest, WeightedPassesHoldEachSampleByItsShare) {
  const std::vector<double> weights = {1, 1, 1, 1, 1, 1, 1, 1, 12, 20};
  const SampleOrder order(5, 10, weights);
  std::vector<int> total(10);
  constexpr int kPasses = 80;
  for (uint64_t pass = 0; pass < kPasses; ++pass) {
    std::vector<int> count(10);
    for (const uint32_t index : Pass(order, pass)) ++count[index];
    for (size_t i = 0; i < weights.size(); ++i) {
      const double expected = 10 * weights[i] / 40;
      EXPECT_GE(count[i], std::floor(expected)) << pass;
      EXPECT_LE(count[i], std::ceil(expected)) << pass;
      total[i] += count[i];
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(total[i], kPasses * 10 * weights[i] / 40, 3) << i;
  }
}

TEST(SampleOrderTest, EqualWeightsVisitEverySample) {
  const SampleOrder order(5, 37, std::vector<double>(37, 0.25));
  for (uint64_t pass = 0; pass < 3; ++pass) {
    std::vector<uint32_t> indices = Pass(order, pass);
    std::ranges::sort(indices);
    EXPECT_EQ(std::ranges::adjacent_find(indices), indices.end());
  }
  EXPECT_NE(Pass(order, 0), Pass(order, 1));
}

TEST(SampleOrderTest, RepeatsGiveEachSampleInARow) {
  const SampleOrder once(9, 12);
  const SampleOrder thrice(9, 12, {}, 3);
  for (uint64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(thrice.IndexAt(position), once.IndexAt(position / 3));
    EXPECT_EQ(thrice.DataEpochOf(position), position / 12);
  }
}

}  // namespace
}  // namespace tundish::data
