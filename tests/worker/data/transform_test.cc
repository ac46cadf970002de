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

std::vector<float> Write(const Image& image, const Box& box, const TransformOptions& options,
                         const Draws* draws) {
  Image square = Resize(image, box, kSize, kSize, options.filter);
  if (draws != nullptr) ChangeLevels(square.pixels.data(), square.channels, options, *draws);
  std::vector<float> out(kSize * kSize * options.channels);
  WritePixels(square.pixels.data(), square.channels, options, draws, out.data());
  return out;
}

std::vector<float> Train(const Image& image, const TransformOptions& options, uint64_t position) {
  const Draws draws = DrawAugmentation(1, position);
  const Box box = CropsAtRandom(options.augment)
                      ? RandomBox(image.width, image.height, draws, options.augment.min_crop_area())
                      : CenterBox(image.width, image.height, options, 1);
  return Write(image, box, options, &draws);
}

std::vector<float> Evaluate(const Image& image, const TransformOptions& options) {
  return Write(image, CenterBox(image.width, image.height, options, options.crop_fraction), options,
               nullptr);
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

// Sizes and offsets as Resize(floor(size / fraction)), CenterCrop(size) of torchvision give them.
TEST(TransformTest, TheEvaluationBoxFollowsTheCropFraction) {
  struct Case {
    int width, height, size;
    double fraction;
    Box want;
  };
  for (const Case& c :
       {Case{100, 100, 50, 1, {0, 0, 100, 100}},
        {100, 50, 50, 1, {25, 0, 75, 50}},
        {256, 256, 224, 0.875, {16, 16, 240, 240}},
        {512, 512, 224, 0.875, {32, 32, 480, 480}},
        // Scaled to 341 x 256, cut from column round(58.5) = 58 on.
        {400,
         300,
         224,
         0.875,
         {58 * 400.0 / 341, 16 * 300.0 / 256, 282 * 400.0 / 341, 240 * 300.0 / 256}}}) {
    TransformOptions options;
    options.image_size = c.size;
    const Box box = CenterBox(c.width, c.height, options, c.fraction);
    EXPECT_DOUBLE_EQ(box.left, c.want.left);
    EXPECT_DOUBLE_EQ(box.top, c.want.top);
    EXPECT_DOUBLE_EQ(box.right, c.want.right);
    EXPECT_DOUBLE_EQ(box.bottom, c.want.bottom);
  }
}

TEST(TransformTest, ReductionKeepsThePixelsThatTheInputNeeds) {
  const ImageInfo jpeg = {.width = 4000, .height = 3000, .channels = 3, .reducible = true};
  struct Case {
    double width, height, gap;
    int want;
  };
  for (const Case& c : {Case{4000, 3000, 1, 8},
                        {4000, 3000, 2, 4},
                        {1792, 1792, 1, 8},
                        {1791, 1792, 1, 4},
                        {3000, 448, 1, 2},
                        {447, 447, 1, 1},
                        {10, 10, 1, 1}}) {
    const Box box = {.right = c.width, .bottom = c.height};
    EXPECT_EQ(DenominatorFor(jpeg, box, 224, c.gap), c.want) << c.width << " " << c.height;
    EXPECT_EQ(DenominatorFor({.width = 4000, .height = 3000}, box, 224, c.gap), 1);
  }
  const Box reduced = Reduced({.left = 40, .top = 30, .right = 4001 - 0.5, .bottom = 2999},
                              {.width = 4001, .height = 2999, .reducible = true}, 8);
  EXPECT_DOUBLE_EQ(reduced.left, 40 * 501.0 / 4001);
  EXPECT_LE(reduced.right, 501);
  EXPECT_DOUBLE_EQ(reduced.bottom, 375);
}

TEST(TransformTest, GreyIsRepeatedForAColourModel) {
  const Image grey = Pattern(kSize, kSize, 1);
  TransformOptions options = Options(3);
  options.augment.set_rotate_90(true);
  options.augment.set_contrast(0.3F);
  for (const bool equal : {true, false}) {
    options.std_dev = equal ? std::vector<float>{0.2F} : std::vector<float>{0.2F, 0.4F, 0.4F};
    const std::vector<float> out = Train(grey, options, 4);
    const size_t plane = kSize * kSize;
    for (size_t i = 0; i < plane; ++i) {
      EXPECT_FLOAT_EQ(out[plane + i], out[i] * (equal ? 1 : 0.5F));
      EXPECT_EQ(out[2 * plane + i], out[plane + i]);
    }
  }
}

TEST(TransformTest, GreyConversionLeavesLuma) {
  const Image image = Pattern(kSize, kSize, 3);
  TransformOptions options = Options(3);
  options.augment.set_grey_probability(1);
  const std::vector<float> out = Train(image, options, 3);
  const size_t plane = kSize * kSize;
  for (size_t i = 0; i < plane; ++i) {
    const uint8_t* rgb = image.pixels.data() + 3 * i;
    EXPECT_NEAR(out[i], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 0.6);
    EXPECT_EQ(out[i], out[plane + i]);
    EXPECT_EQ(out[i], out[2 * plane + i]);
  }
}

TEST(TransformTest, SaturationMovesColoursAlongTheirDistanceFromLuma) {
  const Image image = Pattern(kSize, kSize, 3);
  TransformOptions options = Options(3);
  options.augment.set_saturation(0.8F);
  for (uint64_t position = 0; position < 20; ++position) {
    const double share = 1 + 0.8 * DrawAugmentation(1, position).saturation;
    const std::vector<float> out = Train(image, options, position);
    for (size_t i = 0; i < kSize * kSize; ++i) {
      const uint8_t* rgb = image.pixels.data() + 3 * i;
      const double luma = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
      for (size_t c = 0; c < 3; ++c) {
        const double want = std::clamp(luma + share * (rgb[c] - luma), 0.0, 255.0);
        EXPECT_NEAR(out[c * kSize * kSize + i], want, 1.5);
      }
    }
  }
}

TEST(TransformTest, StretchingReachesBothEnds) {
  Image image = Pattern(kSize, kSize, 1);
  for (uint8_t& level : image.pixels) level = static_cast<uint8_t>(100 + level / 8);
  TransformOptions options = Options(1);
  options.augment.set_stretch_probability(1);
  const std::vector<float> out = Train(image, options, 0);
  EXPECT_NEAR(*std::ranges::min_element(out), 0, 0.01);
  EXPECT_NEAR(*std::ranges::max_element(out), 255, 0.01);
  // A flat image has nothing to stretch.
  std::ranges::fill(image.pixels, uint8_t{77});
  for (const float value : Train(image, options, 0)) EXPECT_NEAR(value, 77, 0.01);
}

TEST(TransformTest, ErasingPutsTheMeanIntoOneRectangle) {
  Image image = Pattern(kSize, kSize, 3);
  for (uint8_t& level : image.pixels) level = std::max<uint8_t>(level, 1);
  TransformOptions options = Options(3);  // Mean 0, so what is erased is 0.
  options.augment.set_erase_probability(0.5F);
  int erased = 0;
  for (uint64_t position = 0; position < 200; ++position) {
    const std::vector<float> out = Train(image, options, position);
    const auto zeros = std::ranges::count(out, 0.0F);
    EXPECT_EQ(zeros % 3, 0);
    EXPECT_LE(zeros, 3 * kSize * kSize / 3 + 3);
    erased += zeros > 0 ? 1 : 0;
  }
  EXPECT_NEAR(erased, 100, 30);
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
