#include <webp/decode.h>

#include <absl/status/status.h>

#include "worker/data/decoders.h"

namespace tundish::data {

absl::StatusOr<Image> DecodeWebp(std::string_view bytes, const DecodeOptions& options) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(data, bytes.size(), &features);
  if (code != VP8_STATUS_OK) {
    return absl::InvalidArgumentError(code == VP8_STATUS_NOT_ENOUGH_DATA
                                          ? "truncated WebP: the file ends early"
                                          : "unreadable WebP: bad header");
  }
  if (features.has_animation != 0) {
    return absl::InvalidArgumentError("an animated WebP; expected a still image");
  }
  if (absl::Status fits = CheckDimensions(features.width, features.height, options); !fits.ok()) {
    return fits;
  }
  Image image = MakeImage(features.width, features.height, 3);
  if (WebPDecodeRGBInto(data, bytes.size(), image.pixels.data(), image.pixels.size(),
                        static_cast<int>(image.row_bytes())) == nullptr) {
    return absl::InvalidArgumentError("truncated or unreadable WebP");
  }
  return image;
}

}  // namespace tundish::data
