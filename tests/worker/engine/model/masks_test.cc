#include "worker/engine/model/masks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "worker/random/philox.h"

namespace tundish::model {
namespace {

TEST(PhiloxTest, MatchesThePublishedVectors) {
  // Known-answer vectors that accompany the paper (Random123, kat_vectors, philox4x32 10).
  const std::array<uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(random::Philox4x32({0, 0, 0, 0}, {0, 0}), zeros);
  const std::array<uint32_t, 4> pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(random::Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                               {0xa4093822, 0x299f31d0}),
            pi);
}

TEST(DropPathTest, AnySlicingOfTheBatchSeesTheSameMasks) {
  const at::Tensor whole = DropPathScale({.seed = 7, .step = 3, .first_position = 100}, 5, 64, 0.4);
  for (const int64_t slice : {1, 7, 16, 32}) {
    std::vector<at::Tensor> parts;
    for (int64_t first = 0; first < 64; first += slice) {
      parts.push_back(DropPathScale({.seed = 7, .step = 3, .first_position = 100 + first}, 5,
                                    std::min(slice, 64 - first), 0.4));
    }
    EXPECT_TRUE(at::equal(at::cat(parts, 0), whole)) << "slices of " << slice;
  }
}

TEST(DropPathTest, EveryPartOfTheKeyMatters) {
  const MaskKey key{.seed = 7, .step = 3, .first_position = 0};
  const at::Tensor base = DropPathScale(key, 5, 64, 0.5);
  EXPECT_TRUE(at::equal(DropPathScale(key, 5, 64, 0.5), base));
  EXPECT_FALSE(at::equal(DropPathScale({.seed = 8, .step = 3}, 5, 64, 0.5), base));
  EXPECT_FALSE(at::equal(DropPathScale({.seed = 7, .step = 4}, 5, 64, 0.5), base));
  EXPECT_FALSE(
      at::equal(DropPathScale({.seed = 7 + (uint64_t{1} << 40), .step = 3}, 5, 64, 0.5), base));
  EXPECT_FALSE(at::equal(DropPathScale(key, 6, 64, 0.5), base));
}

TEST(DropPathTest, DropsTheAskedShareAndKeepsTheMean) {
  const at::Tensor scale = DropPathScale({.seed = 1}, 0, 100000, 0.3);
  const double dropped = scale.eq(0).sum().item<double>() / 100000;
  EXPECT_NEAR(dropped, 0.3, 0.006);  // four standard deviations
  EXPECT_NEAR(scale.mean().item<double>(), 1, 0.009);
}

TEST(DropPathTest, RatesGrowLinearly) {
  EXPECT_DOUBLE_EQ(DropPathRate(0.2, 0, 5), 0);
  EXPECT_DOUBLE_EQ(DropPathRate(0.2, 2, 5), 0.1);
  EXPECT_DOUBLE_EQ(DropPathRate(0.2, 4, 5), 0.2);
  EXPECT_DOUBLE_EQ(DropPathRate(0.2, 0, 1), 0);
}

TEST(DropoutTest, AnyCutOfSamplesAndElementsSeesItsPartOfTheSameMask) {
  const at::Tensor whole =
      DropoutScale({.seed = 7, .step = 3, .first_position = 100}, 5, 6, 0, 90, 0.4);
  for (const int64_t cut : {1, 3, 4, 30, 45, 89}) {
    for (int64_t sample = 0; sample < 6; ++sample) {
      const MaskKey key{.seed = 7, .step = 3, .first_position = 100 + sample};
      const at::Tensor parts = at::cat(
          {DropoutScale(key, 5, 1, 0, cut, 0.4), DropoutScale(key, 5, 1, cut, 90 - cut, 0.4)}, 1);
      EXPECT_TRUE(at::equal(parts[0], whole[sample])) << "cut at " << cut;
    }
  }
}

TEST(DropoutTest, EveryPartOfTheKeyMattersAndTheMeanStays) {
  const MaskKey key{.seed = 7, .step = 3, .first_position = 0};
  const at::Tensor base = DropoutScale(key, 5, 4, 0, 20000, 0.3);
  EXPECT_TRUE(at::equal(DropoutScale(key, 5, 4, 0, 20000, 0.3), base));
  EXPECT_FALSE(at::equal(DropoutScale({.seed = 8, .step = 3}, 5, 4, 0, 20000, 0.3), base));
  EXPECT_FALSE(at::equal(DropoutScale({.seed = 7, .step = 4}, 5, 4, 0, 20000, 0.3), base));
  EXPECT_FALSE(at::equal(DropoutScale(key, 6, 4, 0, 20000, 0.3), base));
  EXPECT_FALSE(at::equal(base[0], base[1]));
  EXPECT_NEAR(base.eq(0).sum().item<double>() / 80000, 0.3, 0.0065);  // four standard deviations
  EXPECT_NEAR(base.mean().item<double>(), 1, 0.01);
}

}  // namespace
}  // namespace tundish::model
