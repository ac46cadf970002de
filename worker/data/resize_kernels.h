#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tundish::data {

/// The input samples that each output sample of an axis mixes: out[i] = (Σ_k weights[i·stride + k]
/// · in[first[i] + k] + half) >> shift for k < count.
struct Taps {
  std::vector<int> first;
  /// Input samples that output i reads; at most `count`.
  std::vector<int> used;
  /// 15-bit weights, zero behind the used ones.
  std::vector<int16_t> weights;
  /// Largest `used`.
  int count = 0;
  /// count rounded up to a multiple of kTapBlock.
  int stride = 0;
  int shift = 0;

  static constexpr int kTapBlock = 8;
};

/// Readable bytes that kernels need behind the last sample of a row.
inline constexpr size_t kRowPadding = 3 * Taps::kTapBlock + 8;

/// The inner loops of resampling. The sets give equal results: plain C++, SSE2 and AVX2.
struct ResizeKernels {
  /// Column pass of one RGB row. The row begins at input sample `offset` and has kRowPadding bytes
  /// behind the last sample read.
  void (*rgb_columns)(const uint8_t* row, int offset, const Taps& taps, uint8_t* out);
  /// Weighted sum of `count` rows of `size` bytes.
  void (*blend_rows)(const uint8_t* const* rows, const int16_t* weights, int count, int shift,
                     size_t size, uint8_t* out);
  /// out[x · out_stride + y] = in[y · in_stride + x] for x < width, y < height.
  void (*transpose)(const uint8_t* in, size_t in_stride, size_t width, size_t height, uint8_t* out,
                    size_t out_stride);
};

/// The sets this processor can run, from the slowest (plain) to the quickest.
const std::vector<const ResizeKernels*>& UsableKernels();
/// The last of them.
const ResizeKernels& FastKernels();

}  // namespace tundish::data
