// Images per second of one loader thread on a manifest: `data_bench MANIFEST [IMAGE_SIZE]
// [CHANNELS]`. Prints decoding alone (all files in memory), then loading with an empty and a full
// cache, each with the main job's augmentation (flips, quarter turns) and with random crops.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "worker/data/batch_loader.h"
#include "worker/data/decode.h"

namespace tundish::data {
namespace {

/// Wall and processor time since it was made; the latter is what a busy machine does not distort.
class Stopwatch {
 public:
  double Wall() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  double Cpu() const { return static_cast<double>(std::clock() - cpu_) / CLOCKS_PER_SEC; }

 private:
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  std::clock_t cpu_ = std::clock();
};

void Print(const std::string& what, size_t images, const Stopwatch& watch) {
  const auto count = static_cast<double>(images);
  fmt::print("{:<56} {:>7.0f} images/s {:>7.0f} per processor second\n", what, count / watch.Wall(),
             count / watch.Cpu());
}

absl::Status BenchDecoding(const Dataset& dataset, int channels) {
  std::vector<std::string> files;
  for (const Sample& sample : dataset.train()) {
    absl::StatusOr<std::string> bytes = ReadFile(sample.file);
    if (!bytes.ok()) return bytes.status();
    files.push_back(*std::move(bytes));
  }
  const Stopwatch watch;
  for (const std::string& bytes : files) {
    if (const auto image = DecodeImage(bytes, {.channels = channels}); !image.ok()) {
      return image.status();
    }
  }
  Print("decode only, full size", files.size(), watch);
  return absl::OkStatus();
}

absl::Status BenchLoading(const Dataset& dataset, const LoaderOptions& options, const char* name) {
  BatchLoader loader(dataset, Split::kTrain, options);
  const auto steps = static_cast<uint32_t>(dataset.train().size() / options.global_batch + 1);
  for (const char* cache : {"empty", "full"}) {
    const Stopwatch watch;
    loader.StartTraining(0, steps, 0, 1);
    absl::StatusOr<Batch> batch = loader.Next();
    while (batch.ok()) batch = loader.Next();
    if (batch.status().code() != absl::StatusCode::kOutOfRange) return batch.status();
    Print(fmt::format("{}, cache {}", name, cache), size_t{steps} * options.global_batch, watch);
  }
  fmt::print("{:<56} {:>9} bytes\n", "  cache", loader.cached_bytes());
  return absl::OkStatus();
}

absl::Status Run(const std::string& manifest, int image_size, int channels) {
  v1::DataSpec spec;
  spec.set_manifest(manifest);
  const Stopwatch watch;
  const absl::StatusOr<Dataset> dataset = Dataset::Scan(spec);
  if (!dataset.ok()) return dataset.status();
  fmt::print("{:<56} {:>9.1f} ms, {} train, {} validation\n", "scan", 1e3 * watch.Wall(),
             dataset->train().size(), dataset->validation().size());
  if (absl::Status done = BenchDecoding(*dataset, channels); !done.ok()) return done;
  LoaderOptions options;
  options.transform.image_size = image_size;
  options.transform.channels = channels;
  options.transform.augment.set_horizontal_flip(true);
  options.transform.augment.set_vertical_flip(true);
  options.transform.augment.set_rotate_90(true);
  options.global_batch = 32;
  options.cache_bytes = uint64_t{1} << 30;
  if (absl::Status done = BenchLoading(*dataset, options, "flips, turns"); !done.ok()) return done;
  options.transform.augment.set_min_crop_area(0.5F);
  options.transform.augment.set_brightness(0.2F);
  return BenchLoading(*dataset, options, "flips, turns, random crop, brightness");
}

}  // namespace
}  // namespace tundish::data

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: data_bench MANIFEST [IMAGE_SIZE] [CHANNELS]\n");
    return 2;
  }
  const int image_size = argc > 2 ? std::atoi(argv[2]) : 128;
  const int channels = argc > 3 ? std::atoi(argv[3]) : 1;
  const absl::Status status = tundish::data::Run(argv[1], image_size, channels);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
