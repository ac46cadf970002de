#include <cstdint>
#include <string_view>
#include <utility>

#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

/// Reads numbers of a TIFF block in its byte order. Outside the block every number is 0.
class TiffBlock {
 public:
  explicit TiffBlock(std::string_view bytes)
      : bytes_(bytes), little_endian_(bytes.starts_with("II")) {}

  uint32_t Number(size_t at, int size) const {
    if (at > bytes_.size() || bytes_.size() - at < static_cast<size_t>(size)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const size_t byte = little_endian_ ? at + size - 1 - i : at + i;
      value = value << 8 | static_cast<uint8_t>(bytes_[byte]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_endian_;
};

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;
constexpr size_t kEntryBytes = 12;

/// Where pixel (x, y) of the upright image is stored: 5 to 8 swap the axes; then the stored column
/// or row runs backwards.
struct Turn {
  bool swaps;
  bool backward_x;
  bool backward_y;
};

Turn TurnOf(int o) {
  return {.swaps = o >= 5,
          .backward_x = o == 2 || o == 3 || o == 7 || o == 8,
          .backward_y = o == 3 || o == 4 || o == 6 || o == 7};
}

}  // namespace

Region StoredRegion(const Region& upright, int stored_width, int stored_height, int orientation) {
  const auto [swaps, backward_x, backward_y] = TurnOf(orientation);
  Region stored = upright;
  if (swaps) {
    stored = {
        .left = upright.top, .top = upright.left, .width = upright.height, .height = upright.width};
  }
  if (backward_x) stored.left = stored_width - stored.right();
  if (backward_y) stored.top = stored_height - stored.bottom();
  return stored;
}

int ExifOrientation(std::string_view app1) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (!app1.starts_with(kPrefix)) return 1;
  const TiffBlock block(app1.substr(kPrefix.size()));
  const size_t directory = block.Number(4, 4);
  const uint32_t entries = block.Number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + kEntryBytes * i;
    if (block.Number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = block.Number(entry + 8, 2);
    const bool valid = block.Number(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return valid ? static_cast<int>(value) : 1;
  }
  return 1;
}

Region UprightRegion(const Region& stored, int stored_width, int stored_height, int orientation) {
  const auto [swaps, backward_x, backward_y] = TurnOf(orientation);
  Region upright = stored;
  if (backward_x) upright.left = stored_width - stored.right();
  if (backward_y) upright.top = stored_height - stored.bottom();
  if (swaps) {
    std::swap(upright.left, upright.top);
    std::swap(upright.width, upright.height);
  }
  return upright;
}

Image Upright(Image stored, int orientation) {
  if (orientation <= 1 || orientation > 8) return stored;
  const auto [swaps, backward_x, backward_y] = TurnOf(orientation);
  const int width = swaps ? stored.height : stored.width;
  const int height = swaps ? stored.width : stored.height;
  Image upright = MakeImage(width, height, stored.channels);
  const auto channels = static_cast<size_t>(stored.channels);
  for (int y = 0; y < height; ++y) {
    uint8_t* to = upright.row(y);
    for (int x = 0; x < width; ++x, to += channels) {
      int from_x = swaps ? y : x;
      int from_y = swaps ? x : y;
      if (backward_x) from_x = stored.width - 1 - from_x;
      if (backward_y) from_y = stored.height - 1 - from_y;
      const uint8_t* from = stored.row(from_y) + channels * static_cast<size_t>(from_x);
      for (size_t c = 0; c < channels; ++c) to[c] = from[c];
    }
  }
  return upright;
}

}  // namespace tundish::data
