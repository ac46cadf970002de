#include "worker/data/batch_loader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"

namespace tundish::data {
namespace {

using ::testing::HasSubstr;

constexpr int kTrain = 11;
constexpr int kValidation = 7;

class BatchLoaderTest : public ::testing::Test {
 protected:
  BatchLoaderTest() {
    std::string manifest = "path,label,split,weight\n";
    for (int i = 0; i < kTrain + kValidation; ++i) {
      const std::string name = fmt::format("{:02}.png", i);
      folder_.Write(name, EncodePng(Pattern(20, 16, 1, i)));
      manifest += fmt::format("{},{},{},{}\n", name, i % 2 == 0 ? "even" : "odd",
                              i < kTrain ? "train" : "val", i == 3 ? 2.5 : 1);
    }
    spec_.set_manifest(folder_.Write("manifest.csv", manifest));
    dataset_.emplace(*Dataset::Scan(spec_));
    options_.transform.image_size = 8;
    options_.transform.channels = 1;
    options_.transform.augment.set_horizontal_flip(true);
    options_.transform.augment.set_min_crop_area(0.5);
    options_.global_batch = 4;
    options_.seed = 3;
  }

  /// All training batches of steps [first, last) on one replica.
  std::vector<Batch> Train(LoaderOptions options, uint32_t first, uint32_t last, uint32_t dp = 0,
                           uint32_t degree = 1) {
    BatchLoader loader(*dataset_, Split::kTrain, options);
    loader.StartTraining(first, last, dp, degree);
    return Drain(loader);
  }

  static std::vector<Batch> Drain(BatchLoader& loader) {
    std::vector<Batch> batches;
    while (true) {
      absl::StatusOr<Batch> batch = loader.Next();
      if (!batch.ok()) {
        EXPECT_EQ(batch.status().code(), absl::StatusCode::kOutOfRange) << batch.status();
        return batches;
      }
      batches.push_back(*std::move(batch));
    }
  }

  static void ExpectEqual(const std::vector<Batch>& a, const std::vector<Batch>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].step, b[i].step);
      EXPECT_EQ(a[i].data_epoch, b[i].data_epoch);
      EXPECT_EQ(a[i].positions, b[i].positions);
      EXPECT_EQ(a[i].samples, b[i].samples);
      EXPECT_EQ(a[i].labels, b[i].labels);
      EXPECT_EQ(a[i].weights, b[i].weights);
      EXPECT_EQ(a[i].global_weight_sum, b[i].global_weight_sum);
      EXPECT_TRUE(std::ranges::equal(a[i].pixels, b[i].pixels)) << i;
    }
  }

  TempFolder folder_;
  v1::DataSpec spec_;
  std::optional<Dataset> dataset_;
  LoaderOptions options_;
};

TEST_F(BatchLoaderTest, ContentsDependOnNeitherThreadsNorLookAheadNorCache) {
  const std::vector<Batch> plain = Train(options_, 0, 12);
  ASSERT_EQ(plain.size(), 12U);
  for (const int threads : {2, 5}) {
    for (const uint64_t cache : {0, 900, 1 << 20}) {
      LoaderOptions options = options_;
      options.threads = threads;
      options.cache_bytes = cache;
      options.look_ahead = threads;
      options.most_look_ahead = 2 * threads;
      ExpectEqual(plain, Train(options, 0, 12));
    }
  }
}

TEST_F(BatchLoaderTest, SlicesOfReplicasAreTheGlobalBatch) {
  const std::vector<Batch> whole = Train(options_, 0, 6);
  for (const uint32_t degree : {2U, 3U, 5U}) {
    std::vector<std::vector<Batch>> parts;
    for (uint32_t dp = 0; dp < degree; ++dp) parts.push_back(Train(options_, 0, 6, dp, degree));
    for (size_t step = 0; step < whole.size(); ++step) {
      std::vector<uint64_t> positions;
      std::vector<float> pixels;
      for (const std::vector<Batch>& part : parts) {
        const Batch& batch = part.at(step);
        EXPECT_EQ(batch.global_weight_sum, whole[step].global_weight_sum);
        positions.insert(positions.end(), batch.positions.begin(), batch.positions.end());
        pixels.insert(pixels.end(), batch.pixels.begin(), batch.pixels.end());
      }
      EXPECT_EQ(positions, whole[step].positions);
      EXPECT_TRUE(std::ranges::equal(pixels, whole[step].pixels));
    }
  }
}

TEST_F(BatchLoaderTest, MixesWithImagesOfOtherReplicasWithoutChangingAnything) {
  options_.mix = {.mixup_alpha = 1, .cutmix_alpha = 1};
  options_.class_weights = {1, 3};
  const std::vector<Batch> whole = Train(options_, 0, 6);
  LoaderOptions plain = options_;
  plain.mix = {};
  const std::vector<Batch> unmixed = Train(plain, 0, 6);
  for (size_t step = 0; step < whole.size(); ++step) {
    const Batch& batch = whole[step];
    EXPECT_FALSE(std::ranges::equal(batch.pixels, unmixed[step].pixels));
    EXPECT_TRUE(unmixed[step].partner_labels.empty());
    double sum = 0;
    for (uint32_t i = 0; i < batch.size(); ++i) {
      const Mix mix = MixAt(options_.mix, options_.seed, batch.positions[i], 4, 8);
      const size_t other = mix.partner - step * 4;
      EXPECT_EQ(batch.labels[i], unmixed[step].labels[i]);
      EXPECT_EQ(batch.partner_labels[i], unmixed[step].labels[other]);
      EXPECT_FLOAT_EQ(batch.weights[i], mix.share * unmixed[step].weights[i]);
      EXPECT_FLOAT_EQ(batch.partner_weights[i], (1 - mix.share) * unmixed[step].weights[other]);
      sum += batch.weights[i] + batch.partner_weights[i];
    }
    EXPECT_NEAR(batch.global_weight_sum, sum, 1e-6);
  }
  for (const uint32_t degree : {2U, 3U}) {
    for (size_t step = 0; step < whole.size(); ++step) {
      Batch joined;
      std::vector<float> pixels;
      for (uint32_t dp = 0; dp < degree; ++dp) {
        const Batch part = Train(options_, 0, 6, dp, degree).at(step);
        EXPECT_EQ(part.global_weight_sum, whole[step].global_weight_sum);
        const auto join = [](auto& all, const auto& more) {
          all.insert(all.end(), more.begin(), more.end());
        };
        join(pixels, part.pixels);
        join(joined.partner_labels, part.partner_labels);
        join(joined.partner_weights, part.partner_weights);
      }
      EXPECT_TRUE(std::ranges::equal(pixels, whole[step].pixels));
      EXPECT_EQ(joined.partner_labels, whole[step].partner_labels);
      EXPECT_EQ(joined.partner_weights, whole[step].partner_weights);
    }
  }
}

// Cases 13 and 19: stopped in the middle of a pass and resumed, the stream goes on.
TEST_F(BatchLoaderTest, ResumesAnywhere) {
  const std::vector<Batch> whole = Train(options_, 0, 12);
  for (const uint32_t from : {1U, 3U, 11U}) {
    ExpectEqual({whole.begin() + from, whole.end()}, Train(options_, from, 12));
  }
  EXPECT_TRUE(Train(options_, 12, 12).empty());
}

// Cases 13, 19, 20: the logged sample ids after a resume, in the middle of a pass, exactly at its
// end, with another number of replicas and other threads, equal those of an uninterrupted run.
TEST_F(BatchLoaderTest, SampleIdsAfterAnyResumeAreThoseOfARunThatNeverStopped) {
  struct Mode {
    std::vector<double> weights;
    uint32_t repeats;
  };
  const std::vector<double> weights = {1, 2, 1, 5, 1, 1, 1, 3, 1, 1, 1};
  for (const Mode& mode : {Mode{{}, 1}, {{}, 2}, {weights, 1}, {weights, 3}}) {
    LoaderOptions options = options_;
    options.sampling_weights = mode.weights;
    options.repeats = mode.repeats;
    // One with which every step ends a pass, and one with which few do.
    for (const uint32_t global_batch : {uint32_t{kTrain}, 4U}) {
      options.global_batch = global_batch;
      std::vector<uint32_t> want;
      for (const Batch& batch : Train(options, 0, 9)) {
        want.insert(want.end(), batch.samples.begin(), batch.samples.end());
      }
      for (const uint32_t stop : {1U, 4U, 8U}) {
        for (const uint32_t degree : {1U, 2U, 3U}) {
          std::vector<uint32_t> got;
          LoaderOptions other = options;
          other.threads = static_cast<int>(degree);
          other.look_ahead = 3;
          for (uint32_t step = 0; step < 9; ++step) {
            // Before the stop one replica, behind it `degree`.
            const uint32_t replicas = step < stop ? 1 : degree;
            for (uint32_t dp = 0; dp < replicas; ++dp) {
              for (const Batch& batch : Train(other, step, step + 1, dp, replicas)) {
                got.insert(got.end(), batch.samples.begin(), batch.samples.end());
              }
            }
          }
          EXPECT_EQ(got, want) << "stop " << stop << ", degree " << degree;
        }
      }
    }
  }
}

TEST_F(BatchLoaderTest, SamplingByWeightCountsOnceInTheLoss) {
  options_.sampling_weights = std::vector<double>(kTrain, 1);
  options_.loss_uses_sample_weights = false;
  for (const Batch& batch : Train(options_, 0, 6)) {
    for (const float weight : batch.weights) EXPECT_EQ(weight, 1.0F);
    EXPECT_EQ(batch.global_weight_sum, 4);
  }
}

TEST_F(BatchLoaderTest, EveryPassSeesEverySampleAndBatchesCrossPasses) {
  std::vector<uint32_t> samples;
  for (const Batch& batch : Train(options_, 0, 11)) {
    EXPECT_EQ(batch.size(), 4U);
    EXPECT_EQ(batch.data_epoch, batch.step * 4 / kTrain);
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  }
  ASSERT_EQ(samples.size(), 44U);
  for (int pass = 0; pass < 4; ++pass) {
    const std::set<uint32_t> seen(samples.begin() + pass * kTrain,
                                  samples.begin() + (pass + 1) * kTrain);
    EXPECT_EQ(seen.size(), size_t{kTrain});
  }
}

TEST_F(BatchLoaderTest, WeightsAreSampleTimesClass) {
  options_.class_weights = {1, 3};
  for (const Batch& batch : Train(options_, 0, 6)) {
    double sum = 0;
    for (uint32_t i = 0; i < batch.size(); ++i) {
      const Sample& sample = dataset_->train()[batch.samples[i]];
      EXPECT_EQ(batch.labels[i], sample.label);
      EXPECT_EQ(batch.weights[i], sample.weight * options_.class_weights[sample.label]);
      sum += batch.weights[i];
    }
    EXPECT_EQ(batch.global_weight_sum, sum);
  }
}

// Case 21: every image once, however the ranks divide them.
TEST_F(BatchLoaderTest, EvaluationCountsEveryImageOnce) {
  for (const uint32_t degree : {1U, 2U, 3U, 9U}) {
    std::vector<uint64_t> positions;
    for (uint32_t dp = 0; dp < degree; ++dp) {
      BatchLoader loader(*dataset_, Split::kValidation, options_);
      loader.StartEvaluation(3, dp, degree);
      for (const Batch& batch : Drain(loader)) {
        EXPECT_LE(batch.size(), 3U);
        EXPECT_GT(batch.size(), 0U);
        positions.insert(positions.end(), batch.positions.begin(), batch.positions.end());
      }
    }
    EXPECT_THAT(positions, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6)) << degree;
  }
}

TEST_F(BatchLoaderTest, CacheStaysWithinItsLimitAndServesLaterPasses) {
  BatchLoader loader(*dataset_, Split::kTrain, options_);
  loader.StartTraining(0, 3, 0, 1);
  Drain(loader);
  EXPECT_GT(loader.cached_bytes(), 0U);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    std::filesystem::remove(entry.path());
  }
  loader.StartTraining(0, 20, 0, 1);  // Reads nothing any more.
  EXPECT_EQ(Drain(loader).size(), 20U);

  options_.cache_bytes = 500;
  BatchLoader small(*dataset_, Split::kTrain, options_);
  EXPECT_EQ(small.cached_bytes(), 0U);
}

TEST_F(BatchLoaderTest, AnImageThatCannotBeHadEndsTheRunWithItsName) {
  folder_.Write("05.png", "damaged");
  for (const int threads : {1, 4}) {
    options_.threads = threads;
    BatchLoader loader(*dataset_, Split::kTrain, options_);
    loader.StartTraining(0, 20, 0, 1);
    absl::StatusOr<Batch> batch = loader.Next();
    while (batch.ok()) batch = loader.Next();
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(batch.status().message()), HasSubstr("'05.png'"));
    EXPECT_THAT(std::string(batch.status().message()), HasSubstr("not an image"));
    EXPECT_EQ(loader.Next().status(), batch.status());
  }
}

TEST_F(BatchLoaderTest, CountsWhatItDid) {
  BatchLoader loader(*dataset_, Split::kTrain, options_);
  loader.StartTraining(0, 5, 0, 1);
  EXPECT_EQ(Drain(loader).size(), 5U);
  const LoaderStats stats = loader.stats();
  EXPECT_EQ(stats.stages.images, 20U);
  EXPECT_EQ(stats.stages.cached, 20U - kTrain);
  EXPECT_GT(stats.stages.read.count(), 0);
  EXPECT_GT(stats.stages.decode.count(), 0);
  EXPECT_GT(stats.stages.transform.count(), 0);
  EXPECT_GT(stats.waited.count(), 0);
  EXPECT_EQ(stats.threads, 1);
}

TEST_F(BatchLoaderTest, BatchesLieWhereTheCallerWantsThem) {
  std::set<const float*> made;
  options_.allocate = [&](size_t count) {
    std::shared_ptr<float> memory = AllocatePlainPixels(count);
    made.insert(memory.get());
    return memory;
  };
  BatchLoader loader(*dataset_, Split::kTrain, options_);
  loader.StartTraining(0, 200, 0, 1);
  for (absl::StatusOr<Batch> batch = loader.Next(); batch.ok(); batch = loader.Next()) {
    EXPECT_TRUE(made.contains(batch->pixels.data()));
  }
  EXPECT_LE(made.size(), 8U);  // Used again and again.
}

TEST_F(BatchLoaderTest, StopsAtAnyTime) {
  options_.threads = 3;
  BatchLoader loader(*dataset_, Split::kTrain, options_);
  EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kCancelled);
  for (int batches = 0; batches < 5; ++batches) {
    loader.StartTraining(0, 1000, 0, 1);
    for (int i = 0; i < batches; ++i) EXPECT_TRUE(loader.Next().ok());
    loader.Stop();
    loader.Stop();
    EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kCancelled);
  }
  loader.StartTraining(0, 1000000, 0, 1);
  std::thread stopper([&] { loader.Stop(); });
  absl::Status last;
  while (last.ok()) last = loader.Next().status();
  EXPECT_EQ(last.code(), absl::StatusCode::kCancelled);
  stopper.join();
}

TEST_F(BatchLoaderTest, AnInterruptEndsWaitsUntilTheNextStart) {
  BatchLoader loader(*dataset_, Split::kTrain, options_);
  loader.StartTraining(0, 1000000, 0, 1);
  std::thread other([&] { loader.Interrupt(); });
  absl::Status last;
  while (last.ok()) last = loader.Next().status();
  EXPECT_EQ(last.code(), absl::StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(loader.Next().status().code(), absl::StatusCode::kCancelled);
  loader.StartTraining(7, 8, 0, 1);
  EXPECT_TRUE(loader.Next().ok());
}

TEST_F(BatchLoaderTest, OptionsComeFromTheSpec) {
  v1::JobSpec spec;
  *spec.mutable_data() = spec_;
  spec.mutable_data()->set_cache_bytes(1800);
  spec.mutable_data()->mutable_augment()->set_vertical_flip(true);
  spec.mutable_data()->add_mean(0.25F);
  spec.mutable_model()->set_image_size(32);
  spec.mutable_model()->set_channels(1);
  spec.mutable_training()->set_global_batch(9);
  spec.mutable_training()->set_seed(77);
  spec.mutable_training()->set_class_weights(v1::INVERSE);
  spec.mutable_training()->set_mixup_alpha(0.5F);
  const LoaderOptions train = MakeLoaderOptions(spec, *dataset_, Split::kTrain);
  EXPECT_EQ(train.transform.image_size, 32);
  EXPECT_TRUE(train.transform.augment.vertical_flip());
  EXPECT_EQ(train.transform.mean, std::vector<float>{0.25F});
  EXPECT_EQ(train.seed, 77U);
  EXPECT_EQ(train.global_batch, 9U);
  EXPECT_EQ(train.mix.mixup_alpha, 0.5);
  EXPECT_EQ(train.class_weights, dataset_->ClassWeights(v1::INVERSE));
  EXPECT_EQ(train.cache_bytes, 1100U);
  const LoaderOptions evaluation = MakeLoaderOptions(spec, *dataset_, Split::kValidation);
  EXPECT_FALSE(evaluation.transform.augment.vertical_flip());
  EXPECT_TRUE(evaluation.class_weights.empty());
  EXPECT_FALSE(evaluation.mix.active());
  EXPECT_EQ(evaluation.cache_bytes, 700U);
}

}  // namespace
}  // namespace tundish::data
