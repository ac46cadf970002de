#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/image.h"
#include "worker/data/resize_kernels.h"

namespace tundish::data {

enum class Filter { kBilinear, kBicubic };

/// A part of an image in its pixel coordinates; edges may fall between pixels.
struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;

  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

/// The pixels of a full_width × full_height image that resampling `box` to width × height reads:
/// those under the box and, at its edges, as far as the filter reaches.
Region PixelsRead(int full_width, int full_height, const Box& box, int width, int height,
                  Filter filter);

/// Resamples with memory that is kept between calls; one per thread.
///
/// Antialiased: when the image shrinks, the filter widens with the scale. Equal to Pillow's
/// Image.resize(size, filter, box) of the full image within 1 level: the same filters, columns
/// before rows, 8-bit values between the passes. Weights have 15 significant bits, which is off by
/// less than 1/50 level in either pass. Integers throughout, so every machine gives the same bits.
class Resizer {
 public:
  explicit Resizer(const ResizeKernels& kernels = FastKernels()) : kernels_(kernels) {}

  /// Resamples `box` (coordinates of the full image, inside it, not empty) to width × height and
  /// writes channel-interleaved rows to `out`. `part` covers PixelsRead(…).
  void Resize(const ImagePart& part, const Box& box, int width, int height, Filter filter,
              uint8_t* out);

 private:
  void ResizeGreyColumns(const ImagePart& part, int first_row, int row_count);
  void ResizeRgbColumns(const ImagePart& part, int first_row, int row_count);
  /// Output rows as `taps` mix them of `rows`, the first of which is input row first_row.
  void Blend(const Taps& taps, const uint8_t* rows, int first_row, size_t row_bytes, uint8_t* out);

  const ResizeKernels& kernels_;  // One of a few constants.
  Taps columns_;
  Taps rows_;
  std::vector<double> exact_;
  std::vector<uint8_t> padded_;
  std::vector<uint8_t> turned_;
  std::vector<uint8_t> turned_narrow_;
  std::vector<const uint8_t*> rows_mixed_;
  /// Resampled columns of the rows that the second pass reads.
  std::vector<uint8_t> narrow_;
};

/// `box` of the whole `image` resampled, as Resizer does.
Image Resize(const Image& image, const Box& box, int width, int height, Filter filter);

}  // namespace tundish::data
