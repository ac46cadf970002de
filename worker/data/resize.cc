#include "worker/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

double Triangle(double x) {
  return std::max(0.0, 1.0 - std::abs(x));
}

/// Keys' cubic convolution with a = -1/2 (IEEE ASSP-29, 1981).
double Cubic(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

/// How one axis is resampled.
struct Axis {
  int in_size;
  double low;
  double scale;    ///< Input samples per output sample.
  double stretch;  ///< Shrinking widens the filter to cover every sample: the antialiasing.
  double support;

  Axis(int in_size, double low, double high, int out_size, Filter filter)
      : in_size(in_size),
        low(low),
        scale((high - low) / out_size),
        stretch(std::max(scale, 1.0)),
        support((filter == Filter::kBilinear ? 1.0 : 2.0) * stretch) {}

  double Center(int out) const { return low + (out + 0.5) * scale; }
  int First(int out) const { return std::max(0, static_cast<int>(Center(out) - support + 0.5)); }
  int End(int out) const {
    return std::min(in_size, static_cast<int>(Center(out) + support + 0.5));
  }
};

/// The largest shift at which every weight still fits 16 bits.
int ShiftFor(double largest_weight) {
  int shift = 15;
  while (shift < 22 && std::lround(largest_weight * (int32_t{2} << shift)) <= INT16_MAX) ++shift;
  while (std::lround(largest_weight * (int32_t{1} << shift)) > INT16_MAX) --shift;
  return shift;
}

/// Fills `taps`; `exact` is memory for the weights before rounding.
void MakeTaps(const Axis& axis, int out_size, Filter filter, std::vector<double>& exact,
              Taps& taps) {
  taps.first.resize(out_size);
  taps.used.resize(out_size);
  taps.count = 0;
  for (int out = 0; out < out_size; ++out) {
    taps.first[out] = axis.First(out);
    taps.used[out] = axis.End(out) - taps.first[out];
    taps.count = std::max(taps.count, taps.used[out]);
  }
  taps.stride = (taps.count + Taps::kTapBlock - 1) / Taps::kTapBlock * Taps::kTapBlock;
  exact.resize(static_cast<size_t>(out_size) * static_cast<size_t>(taps.count));
  double largest = 0;
  double* weight = exact.data();
  for (int out = 0; out < out_size; ++out, weight += taps.count) {
    const double center = axis.Center(out);
    double sum = 0;
    for (int k = 0; k < taps.used[out]; ++k) {
      const double x = (taps.first[out] + k - center + 0.5) / axis.stretch;
      weight[k] = filter == Filter::kBilinear ? Triangle(x) : Cubic(x);
      sum += weight[k];
    }
    for (int k = 0; k < taps.used[out]; ++k) {
      weight[k] /= sum;
      largest = std::max(largest, weight[k]);
    }
  }
  taps.shift = ShiftFor(largest);
  taps.weights.assign(static_cast<size_t>(out_size) * static_cast<size_t>(taps.stride), 0);
  weight = exact.data();
  for (int out = 0; out < out_size; ++out, weight += taps.count) {
    int16_t* rounded = taps.weights.data() + static_cast<size_t>(out) * taps.stride;
    for (int k = 0; k < taps.used[out]; ++k) {
      rounded[k] = static_cast<int16_t>(std::lround(weight[k] * (int32_t{1} << taps.shift)));
    }
  }
}

}  // namespace

Region PixelsRead(int full_width, int full_height, const Box& box, int width, int height,
                  Filter filter) {
  const Axis across(full_width, box.left, box.right, width, filter);
  const Axis down(full_height, box.top, box.bottom, height, filter);
  return {.left = across.First(0),
          .top = down.First(0),
          .width = across.End(width - 1) - across.First(0),
          .height = down.End(height - 1) - down.First(0)};
}

void Resizer::Resize(const ImagePart& part, const Box& box, int width, int height, Filter filter,
                     uint8_t* out) {
  TUNDISH_CHECK(box.left >= 0 && box.top >= 0 && box.right <= part.full_width &&
                box.bottom <= part.full_height && box.left < box.right && box.top < box.bottom);
  TUNDISH_CHECK(width > 0 && height > 0);
  const Region read = PixelsRead(part.full_width, part.full_height, box, width, height, filter);
  TUNDISH_CHECK(part.covers(read));
  MakeTaps(Axis(part.full_width, box.left, box.right, width, filter), width, filter, exact_,
           columns_);
  MakeTaps(Axis(part.full_height, box.top, box.bottom, height, filter), height, filter, exact_,
           rows_);
  if (part.image.channels == 1) {
    ResizeGreyColumns(part, read.top, read.height);
  } else {
    ResizeRgbColumns(part, read.top, read.height);
  }
  Blend(rows_, narrow_.data(), read.top, static_cast<size_t>(width) * part.image.channels, out);
}

void Resizer::ResizeGreyColumns(const ImagePart& part, int first_row, int row_count) {
  // Columns become rows, which many lanes can mix at once, and back.
  const int first = columns_.first.front();
  const auto in_width = static_cast<size_t>(columns_.first.back() + columns_.used.back() - first);
  const size_t out_width = columns_.first.size();
  const auto rows = static_cast<size_t>(row_count);
  turned_.resize(in_width * rows);
  turned_narrow_.resize(out_width * rows);
  narrow_.resize(out_width * rows);
  kernels_.transpose(part.image.row(first_row - part.top) + (first - part.left),
                     part.image.row_bytes(), in_width, rows, turned_.data(), rows);
  Blend(columns_, turned_.data(), first, rows, turned_narrow_.data());
  kernels_.transpose(turned_narrow_.data(), rows, rows, out_width, narrow_.data(), out_width);
}

void Resizer::ResizeRgbColumns(const ImagePart& part, int first_row, int row_count) {
  constexpr size_t kChannels = 3;
  const size_t out_bytes = columns_.first.size() * kChannels;
  const int first = columns_.first.front();
  const size_t in_bytes =
      static_cast<size_t>(columns_.first.back() + columns_.used.back() - first) * kChannels;
  // Kernels read in blocks, so rows are copied to where they may read past the end.
  padded_.resize(in_bytes + static_cast<size_t>(columns_.stride) * kChannels + kRowPadding);
  narrow_.resize(out_bytes * static_cast<size_t>(row_count));
  const size_t skip = static_cast<size_t>(first - part.left) * kChannels;
  for (int row = 0; row < row_count; ++row) {
    std::memcpy(padded_.data(), part.image.row(row + first_row - part.top) + skip, in_bytes);
    kernels_.rgb_columns(padded_.data(), first, columns_,
                         narrow_.data() + out_bytes * static_cast<size_t>(row));
  }
}

void Resizer::Blend(const Taps& taps, const uint8_t* rows, int first_row, size_t row_bytes,
                    uint8_t* out) {
  rows_mixed_.resize(static_cast<size_t>(taps.count));
  for (size_t i = 0; i < taps.first.size(); ++i, out += row_bytes) {
    for (int k = 0; k < taps.used[i]; ++k) {
      rows_mixed_[k] = rows + row_bytes * static_cast<size_t>(taps.first[i] - first_row + k);
    }
    kernels_.blend_rows(rows_mixed_.data(),
                        taps.weights.data() + i * static_cast<size_t>(taps.stride), taps.used[i],
                        taps.shift, row_bytes, out);
  }
}

Image Resize(const Image& image, const Box& box, int width, int height, Filter filter) {
  Image out = MakeImage(width, height, image.channels);
  Resizer().Resize(WholePart(image), box, width, height, filter, out.pixels.data());
  return out;
}

}  // namespace tundish::data
