#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tundish::data {

/// 8-bit pixels, rows from the top, channels interleaved: pixels[(y·width + x)·channels + c].
struct Image {
  int width = 0;
  int height = 0;
  /// 1 (grey) or 3 (RGB).
  int channels = 0;
  std::vector<uint8_t> pixels;

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  const uint8_t* row(int y) const { return pixels.data() + row_bytes() * static_cast<size_t>(y); }
  uint8_t* row(int y) { return pixels.data() + row_bytes() * static_cast<size_t>(y); }
};

/// A rectangle of whole pixels.
struct Region {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;

  int right() const { return left + width; }
  int bottom() const { return top + height; }
  bool operator==(const Region&) const = default;
};

/// The pixels of one region of an image of full_width × full_height; the rest was not decoded.
struct ImagePart {
  Image image;
  /// Where image's first pixel lies in the full image.
  int left = 0;
  int top = 0;
  int full_width = 0;
  int full_height = 0;

  bool whole() const { return image.width == full_width && image.height == full_height; }
  bool covers(const Region& region) const {
    return region.left >= left && region.top >= top && region.right() <= left + image.width &&
           region.bottom() <= top + image.height;
  }
};

/// All of `image`, as a part.
inline ImagePart WholePart(Image image) {
  const int width = image.width;
  const int height = image.height;
  return {.image = static_cast<Image&&>(image), .full_width = width, .full_height = height};
}

}  // namespace tundish::data
