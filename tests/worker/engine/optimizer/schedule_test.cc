#include "worker/engine/optimizer/schedule.h"

#include <gtest/gtest.h>

namespace tundish::optimizer {
namespace {

TEST(LearningRateTest, FollowsTheTable) {
  struct Case {
    const char* name;
    Schedule schedule;
    int64_t step;
    double want;
  };
  const Schedule cosine{ScheduleKind::kCosine, 1.0, 110, 10, 0};
  const Schedule floor{ScheduleKind::kCosine, 2.0, 100, 0, 0.1};
  const Schedule linear{ScheduleKind::kLinear, 1.0, 110, 10, 0.2};
  const Schedule constant{ScheduleKind::kConstant, 0.5, 100, 4, 0};
  const Case cases[] = {
      {"warm-up starts above zero", cosine, 0, 1.0 / 11},
      {"warm-up ends below the peak", cosine, 9, 10.0 / 11},
      {"peak", cosine, 10, 1},
      {"half way", cosine, 60, 0.5},
      {"a quarter", cosine, 35, 0.5 * (1 + 0.70710678118654752)},
      {"end", cosine, 110, 0},
      {"beyond the end", cosine, 5000, 0},
      {"no warm-up", floor, 0, 2},
      {"cosine floor", floor, 100, 0.2},
      {"cosine floor half way", floor, 50, 2 * (0.1 + 0.9 * 0.5)},
      {"linear half way", linear, 60, 0.6},
      {"linear end", linear, 110, 0.2},
      {"constant warm-up", constant, 1, 0.5 * 2 / 5},
      {"constant", constant, 99, 0.5},
      {"all warm-up", {ScheduleKind::kCosine, 1.0, 4, 4, 0}, 3, 0.8},
      {"single step", {ScheduleKind::kLinear, 1.0, 1, 0, 0}, 0, 1},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(LearningRate(c.schedule, c.step), c.want, 1e-12) << c.name;
  }
}

TEST(AverageDecayTest, StartsShortAndEndsAtTheAskedDecay) {
  EXPECT_DOUBLE_EQ(AverageDecay(0.999, 0), 0.1);
  EXPECT_DOUBLE_EQ(AverageDecay(0.999, 90), 0.91);
  EXPECT_DOUBLE_EQ(AverageDecay(0.999, 1000000), 0.999);
}

}  // namespace
}  // namespace tundish::optimizer
