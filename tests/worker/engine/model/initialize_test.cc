#include "worker/engine/model/initialize.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace tundish::model {
namespace {

ParameterSpec Spec(const char* name, Start start, std::vector<int64_t> shape) {
  return {.name = name, .full_shape = std::move(shape), .start = start};
}

TEST(InitialValueTest, HasTheAskedDistribution) {
  struct Case {
    const char* name;
    Start start;
    std::vector<int64_t> shape;
    double deviation;
    double largest;
  };
  // A normal cut at two deviations keeps 0.8796 of its deviation.
  const Case cases[] = {
      {"weights", Start::kTruncatedNormal, {300, 301}, 0.02 * 0.8796, 0.04},
      {"patches", Start::kPatchProjection, {512, 1, 10, 10}, 0.1 * 0.8796, 0.2},
      {"token", Start::kTinyNormal, {1, 1, 30000}, 1e-6, 6e-6},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const at::Tensor value = InitialValue(Spec(c.name, c.start, c.shape), 11);
    EXPECT_NEAR(value.std().item<double>(), c.deviation, 0.02 * c.deviation);
    EXPECT_NEAR(value.mean().item<double>(), 0, 0.03 * c.deviation);
    EXPECT_LE(value.abs().max().item<double>(), c.largest * (1 + 1e-6));
  }
  EXPECT_EQ(InitialValue(Spec("b", Start::kZeros, {4}), 1).abs().sum().item<float>(), 0);
  EXPECT_EQ(InitialValue(Spec("w", Start::kOnes, {4}), 1).sum().item<float>(), 4);
}

TEST(InitialValueTest, DependsOnSeedAndNameOnly) {
  const auto draw = [](const char* name, uint64_t seed) {
    return InitialValue(Spec(name, Start::kTruncatedNormal, {16, 16}), seed);
  };
  EXPECT_TRUE(at::equal(draw("a", 1), draw("a", 1)));
  EXPECT_FALSE(at::equal(draw("a", 1), draw("a", 2)));
  EXPECT_FALSE(at::equal(draw("a", 1), draw("b", 1)));
}

}  // namespace
}  // namespace tundish::model
