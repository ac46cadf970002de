#include "worker/data/image_pipeline.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <fmt/core.h>

namespace tundish::data {
namespace {

using Clock = std::chrono::steady_clock;

// Reduced pixels per pixel of model input, at least. Training: what libjpeg's own reduction leaves
// is hidden by the random crops. Evaluation stays close to decoding everything.
constexpr double kTrainingGap = 1;
constexpr double kEvaluationGap = 2;
// A crop below this share of its image does not decode the whole image for the cache.
constexpr int kSmallCrop = 4;

/// Adds the time since the last lap to a stage.
class Laps {
 public:
  void To(std::chrono::nanoseconds& stage) {
    const Clock::time_point now = Clock::now();
    stage += now - last_;
    last_ = now;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

uint64_t Area(const Region& region) {
  return static_cast<uint64_t>(region.width) * static_cast<uint64_t>(region.height);
}

Region Whole(const ImageInfo& info, int denominator) {
  return {.width = info.reduced_width(denominator), .height = info.reduced_height(denominator)};
}

}  // namespace

absl::StatusOr<std::string> ReadFilePatiently(const std::string& path, const WaitToRetry& wait) {
  constexpr int kTries = 3;
  absl::StatusOr<std::string> bytes = ReadFile(path);
  for (int tries = 1; tries < kTries && absl::IsUnavailable(bytes.status()); ++tries) {
    if (!wait()) break;
    bytes = ReadFile(path);
  }
  return bytes;
}

ImagePipeline::ImagePipeline(const std::vector<Sample>& samples, TransformOptions options,
                             uint64_t cache_bytes, WaitToRetry wait)
    : samples_(samples),
      options_(std::move(options)),
      wait_(std::move(wait)),
      cache_(cache_bytes) {}

absl::StatusOr<std::string> ImagePipeline::Read(const Sample& sample) const {
  absl::StatusOr<std::string> bytes = ReadFilePatiently(sample.file, wait_);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(), fmt::format("image '{}': {}", sample.name,
                                                         std::string(bytes.status().message())));
}

absl::StatusOr<ImagePart> ImagePipeline::Decode(const Sample& sample, std::string_view bytes,
                                                ChooseView choose) const {
  absl::StatusOr<ImagePart> part =
      DecodePart(bytes, {.channels = options_.channels, .keep_grey = true}, choose);
  if (part.ok()) return part;
  return absl::DataLossError(
      fmt::format("image '{}' could be read when the data was checked and cannot now: {}",
                  sample.name, std::string(part.status().message())));
}

absl::Status ImagePipeline::Training(uint32_t index, uint64_t seed, uint64_t position,
                                     Workspace& workspace, StageTimes& times, float* out_chw) {
  const Draws draws = DrawAugmentation(seed, position);
  return CropsAtRandom(options_.augment) ? Cropped(index, draws, workspace, times, out_chw)
                                         : Centered(index, 1, &draws, workspace, times, out_chw);
}

absl::Status ImagePipeline::Evaluation(uint32_t index, Workspace& workspace, StageTimes& times,
                                       float* out_chw) {
  return Centered(index, options_.crop_fraction, nullptr, workspace, times, out_chw);
}

absl::Status ImagePipeline::Cropped(uint32_t index, const Draws& draws, Workspace& workspace,
                                    StageTimes& times, float* out_chw) {
  const Sample& sample = samples_[index];
  const int size = options_.image_size;
  Box box;
  int denominator = 1;
  Region needed;
  const auto place = [&](const ImageInfo& info) {
    box = RandomBox(info.width, info.height, draws, options_.augment.min_crop_area());
    denominator = DenominatorFor(info, box, size, kTrainingGap);
    box = Reduced(box, info, denominator);
    needed = PixelsRead(info.reduced_width(denominator), info.reduced_height(denominator), box,
                        size, size, options_.filter);
  };
  Laps laps;
  ++times.images;
  std::shared_ptr<const CachedImage> cached = cache_.FindAny(index);
  if (cached != nullptr) {
    place(cached->info);
    cached = cache_.Find(index, denominator);
    times.cached += cached != nullptr ? 1 : 0;
  }
  absl::StatusOr<ImagePart> part = ImagePart();
  if (cached == nullptr) {
    const absl::StatusOr<std::string> bytes = Read(sample);
    laps.To(times.read);
    if (!bytes.ok()) return bytes.status();
    ImageInfo info;
    uint64_t reserved = 0;
    part = Decode(sample, *bytes, [&](const ImageInfo& found) {
      info = found;
      place(info);
      const Region whole = Whole(info, denominator);
      const uint64_t whole_bytes = Area(whole) * static_cast<uint64_t>(info.channels);
      const bool worthwhile = !info.reducible || Area(needed) * kSmallCrop >= Area(whole);
      if (!worthwhile || !cache_.Reserve(whole_bytes)) return View{denominator, needed};
      reserved = whole_bytes;
      return View{denominator, whole};
    });
    if (reserved > 0) {
      if (part.ok()) {
        auto kept = std::make_shared<CachedImage>(CachedImage{info, *std::move(part)});
        cached = kept;
        cache_.Put(index, denominator, std::move(kept), reserved);
      } else {
        cache_.Release(reserved);
      }
    }
    laps.To(times.decode);
    if (!part.ok()) return part.status();
  }
  const ImagePart& pixels = cached != nullptr ? cached->part : *part;
  const int channels = pixels.image.channels;
  workspace.square.resize(static_cast<size_t>(size) * size * channels);
  workspace.resizer.Resize(pixels, box, size, size, options_.filter, workspace.square.data());
  ChangeLevels(workspace.square.data(), channels, options_, draws);
  WritePixels(workspace.square.data(), channels, options_, &draws, out_chw);
  laps.To(times.transform);
  return absl::OkStatus();
}

void ImagePipeline::WriteSquare(const std::vector<uint8_t>& square, int channels,
                                const Draws* draws, Workspace& workspace, float* out_chw) const {
  const v1::AugmentSpec& augment = options_.augment;
  const bool changes =
      draws != nullptr && (augment.stretch_probability() > 0 || augment.grey_probability() > 0 ||
                           augment.saturation() > 0);
  if (!changes) return WritePixels(square.data(), channels, options_, draws, out_chw);
  if (&square != &workspace.square) workspace.square = square;  // The cached one stays as it is.
  ChangeLevels(workspace.square.data(), channels, options_, *draws);
  WritePixels(workspace.square.data(), channels, options_, draws, out_chw);
}

absl::Status ImagePipeline::Centered(uint32_t index, double crop_fraction, const Draws* draws,
                                     Workspace& workspace, StageTimes& times, float* out_chw) {
  const Sample& sample = samples_[index];
  const int size = options_.image_size;
  Laps laps;
  ++times.images;
  // What is cached is the finished square: the same for every visit.
  if (const auto cached = cache_.Find(index, 1); cached != nullptr) {
    ++times.cached;
    const Image& square = cached->part.image;
    WriteSquare(square.pixels, square.channels, draws, workspace, out_chw);
    laps.To(times.transform);
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> bytes = Read(sample);
  laps.To(times.read);
  if (!bytes.ok()) return bytes.status();
  Box box;
  const absl::StatusOr<ImagePart> part = Decode(sample, *bytes, [&](const ImageInfo& info) {
    box = CenterBox(info.width, info.height, options_, crop_fraction);
    const int denominator = DenominatorFor(info, box, size, kEvaluationGap);
    box = Reduced(box, info, denominator);
    return View{denominator,
                PixelsRead(info.reduced_width(denominator), info.reduced_height(denominator), box,
                           size, size, options_.filter)};
  });
  laps.To(times.decode);
  if (!part.ok()) return part.status();
  const int channels = part->image.channels;
  const size_t square_bytes = static_cast<size_t>(size) * size * channels;
  const auto resize = [&](std::vector<uint8_t>& out) {
    out.resize(square_bytes);
    workspace.resizer.Resize(*part, box, size, size, options_.filter, out.data());
  };
  if (cache_.Reserve(square_bytes)) {
    auto kept = std::make_shared<CachedImage>();
    Image square = {.width = size, .height = size, .channels = channels};
    resize(square.pixels);
    WriteSquare(square.pixels, channels, draws, workspace, out_chw);
    kept->part = WholePart(std::move(square));
    cache_.Put(index, 1, std::move(kept), square_bytes);
  } else {
    resize(workspace.square);
    WriteSquare(workspace.square, channels, draws, workspace, out_chw);
  }
  laps.To(times.transform);
  return absl::OkStatus();
}

}  // namespace tundish::data
