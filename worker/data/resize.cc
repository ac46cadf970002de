#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/check.h"
#include "worker/data/decoders.h"
#include "worker/data/transform.h"

namespace tundish::data {
namespace {

// Weights are integers scaled by 2^22: the sum of 8-bit samples times weights fits 32 bits, also
// where the cubic filter's negative lobes make the weights' absolute sum exceed 1.
constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

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

/// The input samples that one output sample mixes.
struct Taps {
  int first = 0;
  std::vector<int32_t> weights;
};

/// Taps that map [low, high) of an axis with `in_size` samples to `out_size` samples.
std::vector<Taps> MakeTaps(int in_size, double low, double high, int out_size, Filter filter) {
  const double scale = (high - low) / out_size;
  // Shrinking widens the filter to cover every input sample: that is the antialiasing.
  const double stretch = std::max(scale, 1.0);
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * stretch;
  std::vector<Taps> taps(static_cast<size_t>(out_size));
  std::vector<double> exact;
  for (int out = 0; out < out_size; ++out) {
    const double center = low + (out + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(in_size, static_cast<int>(center + support + 0.5));
    exact.clear();
    double sum = 0;
    for (int in = first; in < end; ++in) {
      const double x = (in - center + 0.5) / stretch;
      exact.push_back(filter == Filter::kBilinear ? Triangle(x) : Cubic(x));
      sum += exact.back();
    }
    taps[out].first = first;
    for (const double weight : exact) {
      taps[out].weights.push_back(
          static_cast<int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
    }
  }
  return taps;
}

uint8_t ToLevel(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

template <int kChannels>
void ResizeRow(const uint8_t* in, const std::vector<Taps>& taps, uint8_t* out) {
  for (const Taps& tap : taps) {
    const uint8_t* from = in + static_cast<size_t>(tap.first) * kChannels;
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kHalf);
    for (const int32_t weight : tap.weights) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weight * from[c];
      from += kChannels;
    }
    for (int c = 0; c < kChannels; ++c) *out++ = ToLevel(sums[c]);
  }
}

}  // namespace

Image Resize(const Image& image, const Box& box, int width, int height, Filter filter) {
  TUNDISH_CHECK(box.left >= 0 && box.top >= 0 && box.right <= image.width &&
                box.bottom <= image.height && box.left < box.right && box.top < box.bottom);
  TUNDISH_CHECK(width > 0 && height > 0);
  const auto columns = MakeTaps(image.width, box.left, box.right, width, filter);
  const auto rows = MakeTaps(image.height, box.top, box.bottom, height, filter);
  // Only the rows that the second pass reads.
  const int first_row = rows.front().first;
  const int row_count =
      rows.back().first + static_cast<int>(rows.back().weights.size()) - first_row;
  Image narrow = MakeImage(width, row_count, image.channels);
  for (int y = 0; y < row_count; ++y) {
    const auto resize_row = image.channels == 1 ? ResizeRow<1> : ResizeRow<3>;
    resize_row(image.row(first_row + y), columns, narrow.row(y));
  }
  Image out = MakeImage(width, height, image.channels);
  std::vector<int32_t> sums(out.row_bytes());
  for (int y = 0; y < height; ++y) {
    std::ranges::fill(sums, kHalf);
    for (size_t k = 0; k < rows[y].weights.size(); ++k) {
      const int32_t weight = rows[y].weights[k];
      const uint8_t* from = narrow.row(rows[y].first - first_row + static_cast<int>(k));
      for (size_t x = 0; x < sums.size(); ++x) sums[x] += weight * from[x];
    }
    std::ranges::transform(sums, out.row(y), ToLevel);
  }
  return out;
}

}  // namespace tundish::data
