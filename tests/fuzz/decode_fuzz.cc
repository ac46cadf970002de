// Any bytes either become an image of the promised shape or a reason, within the given limits.
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "worker/data/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tundish::data;  // NOLINT(google-build-using-namespace)
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr int64_t kMaxPixels = 1 << 20;
  for (const int channels : {1, 3}) {
    const auto image = DecodeImage(bytes, {.channels = channels, .max_pixels = kMaxPixels});
    if (!image.ok()) {
      TUNDISH_CHECK(!image.status().message().empty());
      continue;
    }
    TUNDISH_CHECK(image->channels == channels && image->width > 0 && image->height > 0);
    TUNDISH_CHECK(int64_t{image->width} * image->height <= kMaxPixels);
    TUNDISH_CHECK(image->pixels.size() == image->row_bytes() * image->height);
  }
  Region region;
  const auto part =
      DecodePart(bytes, {.keep_grey = true, .max_pixels = kMaxPixels}, [&](const ImageInfo& info) {
        const int denominator = info.reducible ? 2 : 1;
        const int width = info.reduced_width(denominator);
        const int height = info.reduced_height(denominator);
        region = {.left = width / 4,
                  .top = height / 3,
                  .width = (width + 1) / 2,
                  .height = (height + 1) / 2};
        return View{denominator, region};
      });
  if (part.ok()) TUNDISH_CHECK(part->covers(region));
  return 0;
}
