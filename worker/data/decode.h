#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "worker/data/image.h"

namespace tundish::data {

struct DecodeOptions {
  /// Wanted channels, 1 or 3. Colour becomes grey by ITU-R 601 luma (JPEG: its own Y); grey becomes
  /// colour by repetition. Transparency is dropped, not composed, as Pillow's convert("RGB") does.
  int channels = 3;
  /// JPEG only: the decoder may reduce by 1/2, 1/4 or 1/8 as long as the shorter side stays at
  /// least this long. 0: full size.
  int min_shorter_side = 0;
  /// Larger images (width × height) are refused before anything is allocated for them.
  int64_t max_pixels = int64_t{1} << 27;
};

/// Decodes JPEG (grey, YCbCr, RGB, CMYK, progressive; EXIF orientation applied), PNG (1- to 16-bit
/// grey, colour, palette, alpha), BMP (1, 4, 8, 24, 32 bit, not run-length coded), TIFF (first
/// page; 8- and 16-bit grey and colour, palette) and WebP (still). The format is told by the
/// content; names play no part. 16-bit samples are scaled to 8 bits (PNG rounded, TIFF truncated).
///
/// Errors: InvalidArgument with a reason fit for DataReport: "empty file", "not an image: starts
/// with …", "truncated PNG: …", "too large: …". A JPEG whose data ends early is an error, too
/// (libjpeg would fill the rest with grey). Thread safe; never throws.
absl::StatusOr<Image> DecodeImage(std::string_view bytes, const DecodeOptions& options);

/// Larger image files are refused.
inline constexpr size_t kMaxFileBytes = size_t{1} << 28;

/// The whole file. Errors: NotFound, PermissionDenied; InvalidArgument (not a regular file, larger
/// than `max_bytes`); Unavailable for errors of the medium (EIO, ESTALE …), which may pass.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = kMaxFileBytes);

}  // namespace tundish::data
