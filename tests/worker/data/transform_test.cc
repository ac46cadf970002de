#include "worker/data/transform.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"

namespace tundish::data {
namespace {

constexpr int kSize = 8;

TransformOptions Options(int channels) {
  TransformOptions options;
  options.image_size = kSize;
  options.channels = channels;
  options.mean = {0};
  options.std_dev = {1.0F / 255};  // Values come out as levels.
  return options;
}

std::vector<float> Train(const Image& image, const TransformOptions& options, uint64_t position) {
  std::vector<float> out(kSize * kSize * options.channels);
  TrainingPixels(Prepare(image, options), options, 1, position, out.data());
  return out;
}

std::vector<float> Evaluate(const Image& image, const TransformOptions& options) {
  std::vector<float> out(kSize * kSize * options.channels);
  EvaluationPixels(Prepare(image, options), options, out.data());
  return out;
}

TEST(TransformTest, EvaluationTakesTheCentreSquareAndNormalises) {
  Image image = Pattern(12, kSize, 3);
  TransformOptions options = Options(3);
  options.mean = {0.1F, 0.2F, 0.3F};
  options.std_dev = {0.5F, 0.25F, 0.2F};
  const std::vector<float> out = Evaluate(image, options);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        const float level = image.row(y)[3 * (x + 2) + c];
        EXPECT_NEAR(out[(c * kSize + y) * kSize + x],
                    (level / 255 - options.mean[c]) / options.std_dev[c], 1e-5);
      }
    }
  }
}

TEST(TransformTest, WithoutAugmentationTrainingEqualsEvaluation) {
  const Image image = Pattern(30, 20, 1);
  EXPECT_EQ(Train(image, Options(1), 5), Evaluate(image, Options(1)));
}

TEST(TransformTest, FlipsAndTurnsGiveTheEightOrientations) {
  const Image image = Pattern(kSize, kSize, 1);
  TransformOptions options = Options(1);
  options.augment.set_horizontal_flip(true);
  options.augment.set_vertical_flip(true);
  options.augment.set_rotate_90(true);
  std::set<std::vector<float>> seen;
  for (uint64_t position = 0; position < 200; ++position) {
    std::vector<float> out = Train(image, options, position);
    EXPECT_EQ(out, Train(image, options, position));
    seen.insert(out);
  }
  EXPECT_EQ(seen.size(), 8U);
  options.augment.clear_rotate_90();
  seen.clear();
  for (uint64_t position = 0; position < 100; ++position)
    seen.insert(Train(image, options, position));
  EXPECT_EQ(seen.size(), 4U);
}

TEST(TransformTest, AHorizontalFlipMirrorsRows) {
  const Image image = Pattern(kSize, kSize, 1);
  TransformOptions options = Options(1);
  const std::vector<float> plain = Evaluate(image, options);
  options.augment.set_horizontal_flip(true);
  std::vector<float> mirrored = plain;
  for (int y = 0; y < kSize; ++y) {
    std::reverse(mirrored.begin() + y * kSize, mirrored.begin() + (y + 1) * kSize);
  }
  int flips = 0;
  for (uint64_t position = 0; position < 400; ++position) {
    const std::vector<float> out = Train(image, options, position);
    ASSERT_TRUE(out == plain || out == mirrored);
    flips += out == mirrored ? 1 : 0;
  }
  EXPECT_NEAR(flips, 200, 50);
}

TEST(TransformTest, SwitchingOneAugmentationOnLeavesTheOthers) {
  const Image image = Pattern(kSize, kSize, 1);
  TransformOptions flips = Options(1);
  flips.augment.set_horizontal_flip(true);
  TransformOptions both = flips;
  both.augment.set_brightness(1e-6F);
  for (uint64_t position = 0; position < 20; ++position) {
    const auto a = Train(image, flips, position);
    const auto b = Train(image, both, position);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.01);
  }
}

TEST(TransformTest, RandomCropsVaryWithThePositionAndStayInRange) {
  const Image image = Pattern(90, 60, 3);
  TransformOptions options = Options(3);
  options.augment.set_min_crop_area(0.3F);
  options.augment.set_brightness(0.4F);
  options.augment.set_contrast(0.4F);
  std::set<std::vector<float>> seen;
  for (uint64_t position = 0; position < 50; ++position) {
    std::vector<float> out = Train(image, options, position);
    EXPECT_GE(*std::ranges::min_element(out), 0.0F);
    EXPECT_LE(*std::ranges::max_element(out), 255.01F);
    seen.insert(std::move(out));
  }
  EXPECT_EQ(seen.size(), 50U);
}

TEST(TransformTest, PreparedImagesAreAsSmallAsTheTransformsAllow) {
  TransformOptions options = Options(1);
  EXPECT_EQ(WorkingSide(options), kSize);
  Image prepared = Prepare(Pattern(100, 50, 1), options);
  EXPECT_EQ(prepared.width, kSize);
  EXPECT_EQ(prepared.height, kSize);
  options.augment.set_min_crop_area(0.25F);
  EXPECT_EQ(WorkingSide(options), 2 * kSize);
  prepared = Prepare(Pattern(100, 50, 1), options);
  EXPECT_EQ(prepared.width, 4 * kSize);
  EXPECT_EQ(prepared.height, 2 * kSize);
  prepared = Prepare(Pattern(5, 7, 1), options);
  EXPECT_EQ(prepared.width, 5);
}

TEST(TransformTest, ExtremeShapesWork) {
  TransformOptions options = Options(1);
  for (const float area : {0.0F, 0.01F}) {
    options.augment.set_min_crop_area(area);
    for (const auto& [width, height] : {std::pair{1, 1}, {1, 300}, {300, 1}, {2, 3}}) {
      EXPECT_EQ(Train(Pattern(width, height, 1), options, 3).size(), size_t{kSize * kSize});
    }
  }
}

}  // namespace
}  // namespace tundish::data
