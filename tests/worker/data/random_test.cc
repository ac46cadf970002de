#include "worker/data/random.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "worker/random/philox.h"

namespace tundish::data {
namespace {

TEST(PhiloxTest, GivesTheKnownAnswersOfRandom123) {
  struct Case {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    std::array<uint32_t, 4> want;
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) EXPECT_EQ(random::Philox4x32(c.counter, c.key), c.want);
}

TEST(CounterRandomTest, DependsOnSeedPurposeAndPosition) {
  const auto first = [](uint64_t seed, Purpose purpose, uint64_t position) {
    return CounterRandom(seed, purpose, position).NextBits();
  };
  const uint32_t base = first(1, Purpose::kAugmentation, 7);
  EXPECT_EQ(base, first(1, Purpose::kAugmentation, 7));
  EXPECT_NE(base, first(2, Purpose::kAugmentation, 7));
  EXPECT_NE(base, first(1 + (uint64_t{1} << 32), Purpose::kAugmentation, 7));
  EXPECT_NE(base, first(1, Purpose::kSampleOrder, 7));
  EXPECT_NE(base, first(1, Purpose::kAugmentation, 8));
  EXPECT_NE(base, first(1, Purpose::kAugmentation, 7 + (uint64_t{1} << 32)));
}

TEST(CounterRandomTest, IsUniformWithinItsRange) {
  CounterRandom random(3, Purpose::kAugmentation, 0);
  std::array<int, 7> counts{};
  double sum = 0;
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts.at(random.NextBelow(7));
    const float uniform = random.NextUniform();
    ASSERT_GE(uniform, 0.0F);
    ASSERT_LT(uniform, 1.0F);
    sum += uniform;
  }
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7, 500);  // Five standard deviations.
  EXPECT_NEAR(sum / kDraws, 0.5, 0.006);
}

}  // namespace
}  // namespace tundish::data
