#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "worker/data/dataset.h"
#include "worker/data/decode.h"
#include "worker/data/image_cache.h"
#include "worker/data/transform.h"

namespace tundish::data {

/// Waits before a read is tried again; answers false when there is no point any more.
using WaitToRetry = std::function<bool()>;

/// Reads a file; an error of the medium (Unavailable) is tried three times in all, with `wait`
/// between.
absl::StatusOr<std::string> ReadFilePatiently(const std::string& path, const WaitToRetry& wait);

/// Where the time of one or many images went.
struct StageTimes {
  std::chrono::nanoseconds read{0};
  std::chrono::nanoseconds decode{0};
  std::chrono::nanoseconds transform{0};
  uint64_t images = 0;
  /// Images that were in the cache.
  uint64_t cached = 0;

  void Add(const StageTimes& other) {
    read += other.read;
    decode += other.decode;
    transform += other.transform;
    images += other.images;
    cached += other.cached;
  }
};

/// From samples to model input, written to where the batch wants it.
///
/// What is decoded of an image follows from its size and the crop alone: a JPEG at the smallest of
/// its reduced sizes that keeps image_size pixels a side in the crop (evaluation: twice that, so
/// that the result hardly differs from decoding everything), and of it only the pixels that the
/// resampling reads. With room in the cache the whole reduced image is decoded and kept, which
/// gives the same pixels: caching changes nothing.
///
/// Thread safe; each thread brings a Workspace.
class ImagePipeline {
 public:
  /// Memory of one thread.
  struct Workspace {
    Resizer resizer;
    std::vector<uint8_t> square;
  };

  /// `samples` outlives the pipeline. `wait` paces read retries.
  ImagePipeline(const std::vector<Sample>& samples, TransformOptions options, uint64_t cache_bytes,
                WaitToRetry wait);

  /// Writes sample `index` [channels, image_size, image_size] as seen at `position` of the global
  /// order, resp. as evaluation sees it. Adds to `times`. Errors: DataLoss or what ReadFile says,
  /// with the sample's name.
  absl::Status Training(uint32_t index, uint64_t seed, uint64_t position, Workspace& workspace,
                        StageTimes& times, float* out_chw);
  absl::Status Evaluation(uint32_t index, Workspace& workspace, StageTimes& times, float* out_chw);

  uint64_t cached_bytes() const { return cache_.bytes(); }

 private:
  absl::Status Cropped(uint32_t index, const Draws& draws, Workspace& workspace, StageTimes& times,
                       float* out_chw);
  absl::Status Centered(uint32_t index, double crop_fraction, const Draws* draws,
                        Workspace& workspace, StageTimes& times, float* out_chw);
  void WriteSquare(const std::vector<uint8_t>& square, int channels, const Draws* draws,
                   Workspace& workspace, float* out_chw) const;
  absl::StatusOr<std::string> Read(const Sample& sample) const;
  absl::StatusOr<ImagePart> Decode(const Sample& sample, std::string_view bytes,
                                   ChooseView choose) const;

  const std::vector<Sample>& samples_;  // The dataset's, which outlives this.
  const TransformOptions options_;
  const WaitToRetry wait_;
  ImageCache cache_;
};

}  // namespace tundish::data
