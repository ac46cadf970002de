#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include "worker/data/image.h"

namespace tundish::data {

struct DecodeOptions {
  /// Wanted channels, 1 or 3. Colour becomes grey by ITU-R 601 luma (JPEG: its own Y); grey becomes
  /// colour by repetition. Transparency is dropped, not composed, as Pillow's convert("RGB") does.
  int channels = 3;
  /// Images whose file holds grey stay grey when `channels` is 3: a third of the bytes until the
  /// last step repeats them.
  bool keep_grey = false;
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

/// What is known of an image before its pixels are decoded.
struct ImageInfo {
  /// Upright size, pixels.
  int width = 0;
  int height = 0;
  /// Of the image to come: 1 or 3.
  int channels = 0;
  /// JPEG: can be decoded at 1/2, 1/4 and 1/8 of its size for less work.
  bool reducible = false;

  /// Size when reduced by `denominator`, rounded up.
  int reduced_width(int denominator) const { return (width + denominator - 1) / denominator; }
  int reduced_height(int denominator) const { return (height + denominator - 1) / denominator; }
};

/// What of an image is wanted.
struct View {
  /// 1, 2, 4 or 8; 1 unless the image is reducible.
  int denominator = 1;
  /// Not empty, inside the reduced upright image.
  Region region;
};

/// Decides from the header which part will be decoded. Called once unless the header is bad.
using ChooseView = absl::FunctionRef<View(const ImageInfo&)>;

/// Decodes as DecodeImage, but only what `choose` asks for: JPEG decodes no block outside the
/// region and PNG no row behind it; other formats are decoded whole. The part covers the region and
/// may be larger; its pixels inside the region are those that decoding everything would give (at
/// the same denominator), those outside may be inexact. full_width and full_height are the reduced
/// size. What lies outside the region may be damaged unnoticed.
absl::StatusOr<ImagePart> DecodePart(std::string_view bytes, const DecodeOptions& options,
                                     ChooseView choose);

/// "JPEG", "PNG", "TIFF", "WebP" or "BMP" as the content's first bytes say; empty for anything
/// else.
std::string_view ImageFormat(std::string_view bytes);

/// Larger image files are refused.
inline constexpr size_t kMaxFileBytes = size_t{1} << 28;

/// The whole file. Errors: NotFound, PermissionDenied; InvalidArgument (not a regular file, larger
/// than `max_bytes`); Unavailable for errors of the medium (EIO, ESTALE …), which may pass. Confined to
/// DataRoots::OfProcess().
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = kMaxFileBytes);

}  // namespace tundish::data
