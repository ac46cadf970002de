// Images per second of one thread on the images of a manifest; run by run.py, which compares.
//   data_bench decode MANIFEST SECONDS            bare decoders: libjpeg-turbo or libpng, full size,
//                                                 the file's own channels, all files in memory
//   data_bench load MANIFEST SECONDS CHANNELS SIZE CACHE_BYTES
//                                                 the loader with one thread: random resized crop of
//                                                 0.08 to 1 of the area, flip, normalise
// Prints one JSON object.
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "worker/data/batch_loader.h"
#include "worker/data/decode.h"

namespace tundish::data {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::Status Decode(const Dataset& dataset, double seconds) {
  std::vector<std::string> files;
  for (const Sample& sample : dataset.train()) {
    absl::StatusOr<std::string> bytes = ReadFile(sample.file);
    if (!bytes.ok()) return bytes.status();
    files.push_back(*std::move(bytes));
  }
  const auto start = Clock::now();
  size_t images = 0;
  while (SecondsSince(start) < seconds) {
    const auto image = DecodeImage(files[images++ % files.size()], {.keep_grey = true});
    if (!image.ok()) return image.status();
  }
  fmt::print("{{\"images_per_second\": {:.1f}}}\n",
             static_cast<double>(images) / SecondsSince(start));
  return absl::OkStatus();
}

absl::Status Load(const Dataset& dataset, double seconds, const LoaderOptions& options) {
  BatchLoader loader(dataset, Split::kTrain, options);
  loader.StartTraining(0, UINT32_MAX, 0, 1);
  // The first batches fill buffers and caches of the machine.
  for (int i = 0; i < 2; ++i) {
    if (const absl::StatusOr<Batch> batch = loader.Next(); !batch.ok()) return batch.status();
  }
  const LoaderStats before = loader.stats();
  const auto start = Clock::now();
  while (SecondsSince(start) < seconds) {
    if (const absl::StatusOr<Batch> batch = loader.Next(); !batch.ok()) return batch.status();
  }
  const double elapsed = SecondsSince(start);
  const LoaderStats after = loader.stats();
  const auto images = static_cast<double>(after.stages.images - before.stages.images);
  const auto microseconds = [&](std::chrono::nanoseconds StageTimes::*stage) {
    return static_cast<double>((after.stages.*stage - before.stages.*stage).count()) / 1e3 / images;
  };
  fmt::print(
      "{{\"images_per_second\": {:.1f}, \"read_us\": {:.1f}, \"decode_us\": {:.1f}, "
      "\"transform_us\": {:.1f}}}\n",
      images / elapsed, microseconds(&StageTimes::read), microseconds(&StageTimes::decode),
      microseconds(&StageTimes::transform));
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  v1::DataSpec spec;
  spec.set_manifest(arguments[1]);
  spec.set_validation_fraction(0);
  const absl::StatusOr<Dataset> dataset = Dataset::Scan(spec);
  if (!dataset.ok()) return dataset.status();
  const double seconds = std::atof(arguments[2].c_str());
  if (arguments[0] == "decode") return Decode(*dataset, seconds);
  LoaderOptions options;
  options.transform.channels = std::atoi(arguments[3].c_str());
  options.transform.image_size = std::atoi(arguments[4].c_str());
  options.transform.augment.set_horizontal_flip(true);
  options.transform.augment.set_min_crop_area(0.08F);
  options.global_batch = 32;
  options.cache_bytes = std::strtoull(arguments[5].c_str(), nullptr, 10);
  return Load(*dataset, seconds, options);
}

}  // namespace
}  // namespace tundish::data

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const size_t wanted = !arguments.empty() && arguments[0] == "load" ? 6 : 3;
  if (arguments.size() != wanted) {
    fmt::print(stderr,
               "usage: data_bench decode MANIFEST SECONDS\n"
               "       data_bench load MANIFEST SECONDS CHANNELS SIZE CACHE_BYTES\n");
    return 2;
  }
  const absl::Status status = tundish::data::Run(arguments);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
