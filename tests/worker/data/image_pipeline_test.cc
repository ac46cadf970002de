#include "worker/data/image_pipeline.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"
#include "worker/data/decode_threads.h"
#include "worker/data/look_ahead.h"
#include "worker/data/pixel_pool.h"

namespace tundish::data {
namespace {

class ImagePipelineTest : public ::testing::Test {
 protected:
  ImagePipelineTest() {
    Add("small.jpg", EncodeJpeg(Pattern(50, 40, 3)));
    Add("grey.jpg", EncodeJpeg(Pattern(60, 70, 1)));
    Add("large.jpg", EncodeJpeg(Pattern(400, 300, 3), {.orientation = 6}));
    Add("image.png", EncodePng(Pattern(90, 80, 3)));
    Add("grey.png", EncodePng(Pattern(33, 95, 1)));
    Add("image.bmp", EncodeBmp(Pattern(90, 80, 3)));
    options_.image_size = 16;
    options_.channels = 3;
  }

  void Add(const std::string& name, const std::string& bytes) {
    samples_.push_back({.name = name, .file = folder_.Write(name, bytes)});
  }

  std::vector<float> Pixels(ImagePipeline& pipeline, uint32_t sample, uint64_t position) {
    std::vector<float> out(3 * 16 * 16);
    EXPECT_TRUE(pipeline.Training(sample, 5, position, workspace_, times_, out.data()).ok());
    return out;
  }

  TempFolder folder_;
  std::vector<Sample> samples_;
  TransformOptions options_;
  ImagePipeline::Workspace workspace_;
  StageTimes times_;
};

TEST_F(ImagePipelineTest, CachingChangesNoPixel) {
  for (const float min_area : {0.0F, 0.02F, 0.5F}) {
    options_.augment.set_min_crop_area(min_area);
    ImagePipeline none(samples_, options_, 0, [] { return true; });
    ImagePipeline some(samples_, options_, 20'000, [] { return true; });
    ImagePipeline all(samples_, options_, 1 << 24, [] { return true; });
    for (uint64_t position = 0; position < 120; ++position) {
      const auto sample = static_cast<uint32_t>(position % samples_.size());
      const std::vector<float> want = Pixels(none, sample, position);
      ASSERT_EQ(want, Pixels(some, sample, position)) << samples_[sample].name;
      ASSERT_EQ(want, Pixels(all, sample, position)) << samples_[sample].name;
    }
    EXPECT_EQ(none.cached_bytes(), 0U);
    EXPECT_LE(some.cached_bytes(), 20'000U);
    EXPECT_GT(all.cached_bytes(), 0U);
  }
}

// What the reduced decoding leaves differs little from decoding everything and resampling it.
TEST_F(ImagePipelineTest, EvaluationIsCloseToDecodingEverything) {
  Image smooth = Pattern(800, 600, 1);
  for (int y = 0; y < 600; ++y) {
    for (int x = 0; x < 800; ++x) {
      smooth.row(y)[x] = static_cast<uint8_t>((x / 40 + y / 40) % 2 == 0 ? 60 : 180);
    }
  }
  const std::string bytes = EncodeJpeg(smooth);
  Add("checks.jpg", bytes);
  options_.image_size = 100;
  options_.mean = {0};
  options_.std_dev = {1.0F / 255};
  ImagePipeline pipeline(samples_, options_, 0, [] { return true; });
  std::vector<float> out(3 * 100 * 100);
  ASSERT_TRUE(pipeline.Evaluation(6, workspace_, times_, out.data()).ok());
  const Image full = Resize(*DecodeImage(bytes, {.channels = 1}), CenterBox(800, 600, options_, 1),
                            100, 100, Filter::kBilinear);
  double difference = 0;
  for (size_t i = 0; i < full.pixels.size(); ++i) {
    difference += std::abs(out[i] - static_cast<float>(full.pixels[i]));
  }
  EXPECT_LT(difference / static_cast<double>(full.pixels.size()), 1.0);
}

TEST_F(ImagePipelineTest, ErrorsNameTheImage) {
  folder_.Write("small.jpg", "no more");
  ImagePipeline pipeline(samples_, options_, 1 << 20, [] { return true; });
  std::vector<float> out(3 * 16 * 16);
  const absl::Status status = pipeline.Training(0, 1, 0, workspace_, times_, out.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(status.message()).find("'small.jpg'"), std::string::npos);
  EXPECT_EQ(pipeline.cached_bytes(), 0U);
}

TEST(LookAheadTest, GrowsWhenIdleThreadsCouldHaveWorkedAhead) {
  LookAhead look_ahead(2, 4);
  EXPECT_EQ(look_ahead.batches(), 2);
  look_ahead.OnNext(0, false);  // The threads are too slow: more batches would not help.
  EXPECT_EQ(look_ahead.batches(), 2);
  for (int i = 0; i < 5; ++i) look_ahead.OnNext(0, true);
  EXPECT_EQ(look_ahead.batches(), 4);
  for (int i = 0; i < 63; ++i) look_ahead.OnNext(4, true);
  EXPECT_EQ(look_ahead.batches(), 4);
  look_ahead.OnNext(4, true);
  EXPECT_EQ(look_ahead.batches(), 3);
  for (int i = 0; i < 1000; ++i) look_ahead.OnNext(3, true);
  EXPECT_EQ(look_ahead.batches(), 2);
}

TEST(DecodeThreadsTest, ShareTheHost) {
  struct Case {
    int cores, ranks, compute, want;
  };
  for (const Case& c : {Case{2, 4, 1, 1},
                        {2, 1, 1, 1},
                        {8, 4, 1, 1},
                        {16, 4, 1, 3},
                        {96, 8, 1, 11},
                        {192, 2, 4, 32},
                        {1, 0, 1, 1}}) {
    EXPECT_EQ(DecodeThreads(c.cores, c.ranks, c.compute), c.want) << c.cores << " " << c.ranks;
  }
  EXPECT_GE(UsableCores(), 1);
}

TEST(PixelPoolTest, BuffersOutliveThePoolAndComeBack) {
  PixelBuffer outlives;
  {
    PixelPool pool(nullptr);
    const float* first = nullptr;
    {
      PixelBuffer buffer = pool.Take(100);
      first = buffer.data();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
      const PixelBuffer copy = buffer;
      buffer = pool.Take(100);
      EXPECT_NE(buffer.data(), first);
    }
    outlives = pool.Take(90);
    EXPECT_EQ(outlives.size(), 90U);
    EXPECT_EQ(pool.Take(0).size(), 0U);
    PixelBuffer larger = pool.Take(1000);
    larger.data()[999] = 1;
  }
  outlives.data()[89] = 1;
}

}  // namespace
}  // namespace tundish::data
