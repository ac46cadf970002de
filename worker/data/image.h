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

}  // namespace tundish::data
