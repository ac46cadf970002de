#include "worker/data/mix.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tundish::data {
namespace {

TEST(MixTest, EveryPartOfTheKeyMattersAndNothingElse) {
  const MixOptions options{.mixup_alpha = 0.5, .cutmix_alpha = 1};
  const Mix mix = MixAt(options, 7, 1000, 32, 64);
  EXPECT_EQ(MixAt(options, 7, 1000, 32, 64), mix);
  EXPECT_FALSE(MixAt(options, 8, 1000, 32, 64) == mix);
  EXPECT_FALSE(MixAt(options, 7, 1001, 32, 64) == mix);
}

TEST(MixTest, PartnersComeFromTheWholeGlobalBatch) {
  std::set<uint64_t> partners;
  for (uint64_t position = 32; position < 64; ++position) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      partners.insert(MixAt({.mixup_alpha = 1}, seed, position, 32, 8).partner);
    }
  }
  EXPECT_EQ(partners.size(), 32U);
  EXPECT_EQ(*partners.begin(), 32U);
  EXPECT_EQ(*partners.rbegin(), 63U);
  EXPECT_EQ(MixAt({.mixup_alpha = 1}, 0, (uint64_t{1} << 40) + 5, 1, 8).partner,
            (uint64_t{1} << 40) + 5);
}

// Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
TEST(MixTest, SharesFollowTheBetaDistribution) {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.01, 0.2, 1.0, 5.0}) {
    double sum = 0;
    double squares = 0;
    for (uint64_t position = 0; position < kDraws; ++position) {
      const float share = MixAt({.mixup_alpha = alpha}, 3, position, 8, 16).share;
      ASSERT_TRUE(share >= 0 && share <= 1) << share;
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    // Four standard deviations of the mean; the fourth moment is at most 1/4 of the variance.
    EXPECT_NEAR(sum / kDraws, 0.5, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 4 * std::sqrt(variance / 4 / kDraws)) << alpha;
  }
}

TEST(MixTest, ABoxHasTheAreaThatItsShareSays) {
  constexpr int kSide = 24;
  int boxes = 0;
  for (uint64_t position = 0; position < 500; ++position) {
    const Mix mix = MixAt({.mixup_alpha = 1, .cutmix_alpha = 1}, 5, position, 8, kSide);
    if (!mix.cut) continue;
    ++boxes;
    ASSERT_TRUE(0 <= mix.left && mix.left <= mix.right && mix.right <= kSide);
    ASSERT_TRUE(0 <= mix.top && mix.top <= mix.bottom && mix.bottom <= kSide);
    std::vector<float> own(2 * kSide * kSide, 1);
    const std::vector<float> partner(own.size(), 0);
    MixPixels(mix, partner.data(), 2, kSide, own.data());
    double kept = 0;
    for (const float value : own) kept += value;
    EXPECT_NEAR(kept / static_cast<double>(own.size()), mix.share, 1e-6);
  }
  EXPECT_NEAR(boxes, 250, 45);  // Four standard deviations of half of 500.
}

TEST(MixTest, MixupAveragesPixels) {
  const Mix mix{.share = 0.25F};
  std::vector<float> own = {1, 2, 3, 4};
  const std::vector<float> partner = {5, 6, 7, 8};
  MixPixels(mix, partner.data(), 1, 2, own.data());
  EXPECT_EQ(own, (std::vector<float>{4, 5, 6, 7}));
}

}  // namespace
}  // namespace tundish::data
