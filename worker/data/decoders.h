#pragma once

#include <cstdint>
#include <string_view>

#include <absl/status/statusor.h>

#include "worker/data/decode.h"
#include "worker/data/image.h"

namespace tundish::data {

// One function per format; contract as DecodePart or DecodeImage, for bytes that begin as the
// format's files do.
absl::StatusOr<ImagePart> DecodeJpeg(std::string_view bytes, const DecodeOptions& options,
                                     ChooseView choose);
absl::StatusOr<ImagePart> DecodePng(std::string_view bytes, const DecodeOptions& options,
                                    ChooseView choose);
absl::StatusOr<Image> DecodeBmp(std::string_view bytes, const DecodeOptions& options);
absl::StatusOr<Image> DecodeTiff(std::string_view bytes, const DecodeOptions& options);
absl::StatusOr<Image> DecodeWebp(std::string_view bytes, const DecodeOptions& options);

/// InvalidArgument unless 1 ≤ width, height and width · height ≤ options.max_pixels.
absl::Status CheckDimensions(int64_t width, int64_t height, const DecodeOptions& options);

/// An image with room for its pixels. Dimensions have been checked.
Image MakeImage(int width, int height, int channels);

/// ITU-R 601 luma in Pillow's fixed-point form: (19595 R + 38470 G + 7471 B + 2^15) / 2^16.
inline uint8_t Luma(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>((19595U * red + 38470U * green + 7471U * blue + 0x8000U) >> 16);
}

/// Grey ↔ RGB.
Image WithChannels(Image image, int channels);

/// The value of the EXIF tag Orientation (1 to 8) in a JPEG APP1 segment's payload; 1 if there is
/// none.
int ExifOrientation(std::string_view app1);

/// Turns and mirrors stored pixels so that they stand as EXIF orientation 1 … 8 asks.
Image Upright(Image stored, int orientation);
/// Where `upright`, a region of an upright image, lies in the stored image of width × height.
Region StoredRegion(const Region& upright, int stored_width, int stored_height, int orientation);
/// The other way.
Region UprightRegion(const Region& stored, int stored_width, int stored_height, int orientation);

}  // namespace tundish::data
