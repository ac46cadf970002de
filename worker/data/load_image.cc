#include "worker/data/load_image.h"

#include "worker/data/decode.h"

namespace tundish::data {

absl::StatusOr<std::string> ReadFilePatiently(const std::string& path, const WaitToRetry& wait) {
  constexpr int kTries = 3;
  absl::StatusOr<std::string> bytes = ReadFile(path);
  for (int tries = 1; tries < kTries && absl::IsUnavailable(bytes.status()); ++tries) {
    if (!wait()) break;
    bytes = ReadFile(path);
  }
  return bytes;
}

absl::StatusOr<Image> DecodeForModel(std::string_view bytes, const TransformOptions& options) {
  return DecodeImage(bytes,
                     {.channels = options.channels, .min_shorter_side = WorkingSide(options)});
}

}  // namespace tundish::data
