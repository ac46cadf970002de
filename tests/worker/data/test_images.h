#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "worker/data/image.h"

namespace tundish::data {

/// A folder that goes away with the test.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::filesystem::path& path() const { return path_; }
  /// Writes path()/name, making folders as needed; answers the full path.
  std::string Write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

/// Smooth colours with some noise, different for each `variant`.
Image Pattern(int width, int height, int channels, uint32_t variant = 0);

std::string EncodePng(const Image& image, bool interlaced = false);
/// Values are the image's levels times 257, so that decoding to 8 bits gives them back.
std::string EncodePng16(const Image& image);
struct JpegForm {
  int quality = 95;
  bool progressive = false;
  /// Chroma at half the resolution both ways (as libjpeg's default is).
  bool half_chroma = true;
  /// EXIF orientation, 1 to 8; 0 writes no EXIF block.
  int orientation = 0;
};
std::string EncodeJpeg(const Image& image, const JpegForm& form = {});
/// 24-bit.
std::string EncodeBmp(const Image& image);

}  // namespace tundish::data
