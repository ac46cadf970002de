#include "worker/data/resize_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tundish::data {
namespace {

uint8_t ToLevel(int32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255));
}

int32_t Half(int shift) {
  return int32_t{1} << (shift - 1);
}

void PlainRgbColumns(const uint8_t* row, int offset, const Taps& taps, uint8_t* out) {
  for (size_t i = 0; i < taps.first.size(); ++i) {
    const uint8_t* from = row + static_cast<ptrdiff_t>(taps.first[i] - offset) * 3;
    const int16_t* weights = taps.weights.data() + i * static_cast<size_t>(taps.stride);
    std::array<int32_t, 3> sums;
    sums.fill(Half(taps.shift));
    for (int k = 0; k < taps.used[i]; ++k, from += 3) {
      for (int c = 0; c < 3; ++c) sums[c] += weights[k] * from[c];
    }
    for (const int32_t sum : sums) *out++ = ToLevel(sum, taps.shift);
  }
}

void PlainBlend(const uint8_t* const* rows, const int16_t* weights, int count, int shift,
                size_t size, size_t begin, uint8_t* out) {
  for (size_t x = begin; x < size; ++x) {
    int32_t sum = Half(shift);
    for (int k = 0; k < count; ++k) sum += weights[k] * rows[k][x];
    out[x] = ToLevel(sum, shift);
  }
}

void PlainBlendRows(const uint8_t* const* rows, const int16_t* weights, int count, int shift,
                    size_t size, uint8_t* out) {
  PlainBlend(rows, weights, count, shift, size, 0, out);
}

void PlainTranspose(const uint8_t* in, size_t in_stride, size_t width, size_t height, uint8_t* out,
                    size_t out_stride) {
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) out[x * out_stride + y] = in[y * in_stride + x];
  }
}

#if defined(__SSE2__)

/// Four sums → four levels in the low bytes.
int32_t PackLevels(__m128i sums, __m128i shift) {
  const __m128i levels = _mm_sra_epi32(sums, shift);
  const __m128i words = _mm_packs_epi32(levels, levels);  // Saturating, as ToLevel clamps.
  return _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
}

__m128i LoadWords(const uint8_t* from) {
  return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)),
                           _mm_setzero_si128());
}

void SseRgbColumns(const uint8_t* row, int offset, const Taps& taps, uint8_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(taps.shift);
  const __m128i half = _mm_set1_epi32(Half(taps.shift));
  for (size_t i = 0; i < taps.first.size(); ++i) {
    const uint8_t* from = row + static_cast<ptrdiff_t>(taps.first[i] - offset) * 3;
    const int16_t* weights = taps.weights.data() + i * static_cast<size_t>(taps.stride);
    __m128i sums = half;
    // Two pixels at a time: r0 r1 g0 g1 b0 b1 against w0 w1 w0 w1 w0 w1.
    for (int k = 0; k < taps.count; k += 2, from += 6) {
      int32_t pair;
      std::memcpy(&pair, weights + k, sizeof(pair));
      const __m128i pixels = LoadWords(from);
      const __m128i both = _mm_unpacklo_epi16(pixels, _mm_srli_si128(pixels, 6));
      sums = _mm_add_epi32(sums, _mm_madd_epi16(both, _mm_set1_epi32(pair)));
    }
    const int32_t levels = PackLevels(sums, shift);
    std::memcpy(out, &levels, 3);
    out += 3;
  }
}

/// Weights k and k + 1 (0 where there is none) as a multiply-add wants them.
int32_t PairOfWeights(const int16_t* weights, int k, bool pair) {
  const auto low = static_cast<uint16_t>(weights[k]);
  const auto high = static_cast<uint16_t>(pair ? weights[k + 1] : 0);
  return static_cast<int32_t>(uint32_t{high} << 16 | low);
}

void SseBlendRows(const uint8_t* const* rows, const int16_t* weights, int count, int shift,
                  size_t size, uint8_t* out) {
  const __m128i zero = _mm_setzero_si128();
  const __m128i half = _mm_set1_epi32(Half(shift));
  const __m128i shift_by = _mm_cvtsi32_si128(shift);
  constexpr size_t kBlock = 16;
  size_t x = 0;
  for (; x + kBlock <= size; x += kBlock) {
    __m128i sums[4] = {half, half, half, half};
    for (int k = 0; k < count; k += 2) {
      const bool pair = k + 1 < count;
      const __m128i weight = _mm_set1_epi32(PairOfWeights(weights, k, pair));
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[k] + x));
      const __m128i b =
          pair ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[k + 1] + x)) : zero;
      const __m128i low_bytes = _mm_unpacklo_epi8(a, b);
      const __m128i high_bytes = _mm_unpackhi_epi8(a, b);
      const __m128i words[4] = {
          _mm_unpacklo_epi8(low_bytes, zero), _mm_unpackhi_epi8(low_bytes, zero),
          _mm_unpacklo_epi8(high_bytes, zero), _mm_unpackhi_epi8(high_bytes, zero)};
      for (size_t q = 0; q < 4; ++q) {
        sums[q] = _mm_add_epi32(sums[q], _mm_madd_epi16(words[q], weight));
      }
    }
    for (__m128i& sum : sums) sum = _mm_sra_epi32(sum, shift_by);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out + x),
        _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3])));
  }
  PlainBlend(rows, weights, count, shift, size, x, out);
}

__attribute__((target("avx2"))) void Avx2BlendRows(const uint8_t* const* rows,
                                                   const int16_t* weights, int count, int shift,
                                                   size_t size, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(Half(shift));
  const __m128i shift_by = _mm_cvtsi32_si128(shift);
  constexpr size_t kBlock = 32;
  size_t x = 0;
  for (; x + kBlock <= size; x += kBlock) {
    __m256i sums[4] = {half, half, half, half};
    for (int k = 0; k < count; k += 2) {
      const bool pair = k + 1 < count;
      const __m256i weight = _mm256_set1_epi32(PairOfWeights(weights, k, pair));
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + x));
      const __m256i b =
          pair ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + x)) : zero;
      const __m256i low_bytes = _mm256_unpacklo_epi8(a, b);
      const __m256i high_bytes = _mm256_unpackhi_epi8(a, b);
      const __m256i words[4] = {
          _mm256_unpacklo_epi8(low_bytes, zero), _mm256_unpackhi_epi8(low_bytes, zero),
          _mm256_unpacklo_epi8(high_bytes, zero), _mm256_unpackhi_epi8(high_bytes, zero)};
      for (size_t q = 0; q < 4; ++q) {
        sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(words[q], weight));
      }
    }
    for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, shift_by);
    // Unpacking and packing keep to the 128-bit halves, so the order is right again.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x),
                        _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                            _mm256_packs_epi32(sums[2], sums[3])));
  }
  PlainBlend(rows, weights, count, shift, size, x, out);
}

/// One block of 16 × 16: each of four rounds interleaves row i with row i + 8.
void TransposeBlock(const uint8_t* in, size_t in_stride, uint8_t* out, size_t out_stride) {
  __m128i rows[16];
  __m128i mixed[16];
  for (size_t i = 0; i < 16; ++i) {
    rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * in_stride));
  }
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 8; ++i) {
      mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    for (size_t i = 0; i < 8; ++i) {
      rows[2 * i] = _mm_unpacklo_epi8(mixed[i], mixed[i + 8]);
      rows[2 * i + 1] = _mm_unpackhi_epi8(mixed[i], mixed[i + 8]);
    }
  }
  for (size_t i = 0; i < 16; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * out_stride), rows[i]);
  }
}

void SseTranspose(const uint8_t* in, size_t in_stride, size_t width, size_t height, uint8_t* out,
                  size_t out_stride) {
  constexpr size_t kBlock = 16;
  const size_t across = width / kBlock * kBlock;
  const size_t down = height / kBlock * kBlock;
  for (size_t y = 0; y < down; y += kBlock) {
    for (size_t x = 0; x < across; x += kBlock) {
      TransposeBlock(in + y * in_stride + x, in_stride, out + x * out_stride + y, out_stride);
    }
  }
  PlainTranspose(in + across, in_stride, width - across, down, out + across * out_stride,
                 out_stride);
  PlainTranspose(in + down * in_stride, in_stride, width, height - down, out + down, out_stride);
}

constexpr ResizeKernels kSse = {
    .rgb_columns = SseRgbColumns, .blend_rows = SseBlendRows, .transpose = SseTranspose};
constexpr ResizeKernels kAvx2 = {
    .rgb_columns = SseRgbColumns, .blend_rows = Avx2BlendRows, .transpose = SseTranspose};
#endif

constexpr ResizeKernels kPlain = {
    .rgb_columns = PlainRgbColumns, .blend_rows = PlainBlendRows, .transpose = PlainTranspose};

}  // namespace

const std::vector<const ResizeKernels*>& UsableKernels() {
  static const std::vector<const ResizeKernels*> usable = [] {
    std::vector<const ResizeKernels*> sets = {&kPlain};
#if defined(__SSE2__)
    sets.push_back(&kSse);
    if (__builtin_cpu_supports("avx2") != 0) sets.push_back(&kAvx2);
#endif
    return sets;
  }();
  return usable;
}

const ResizeKernels& FastKernels() {
  return *UsableKernels().back();
}

}  // namespace tundish::data
