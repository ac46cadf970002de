#include "worker/data/mix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "worker/data/random.h"

namespace tundish::data {
namespace {

/// One position's own stream of draws.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t position) : random_(seed, Purpose::kMix, position) {}

  uint32_t Word() { return random_.NextBits(); }
  /// In (0, 1).
  double Uniform() { return (static_cast<double>(Word()) + 0.5) / 4294967296.0; }

  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

  /// Marsaglia and Tsang 2000; below 1 by way of shape + 1. The logarithm, since for a small shape
  /// the value itself may be too small for a double.
  double LogGamma(double shape) {
    if (shape < 1) return LogGamma(shape + 1) + std::log(Uniform()) / shape;
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (1 + c * x <= 0) continue;
      if (std::log(Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
    }
  }

  double Beta(double alpha) {
    const double a = LogGamma(alpha);
    const double b = LogGamma(alpha);
    return 1 / (1 + std::exp(b - a));
  }

 private:
  CounterRandom random_;
};

/// A box of the partner's share of the area around a random centre, cut at the border; `share` is
/// what is left outside.
void PlaceBox(double share, int size, Draws& draws, Mix& mix) {
  const double half = std::sqrt(1 - share) * size / 2;
  const double x = draws.Uniform() * size;
  const double y = draws.Uniform() * size;
  const auto edge = [size](double at) {
    return std::clamp(static_cast<int>(std::lround(at)), 0, size);
  };
  mix.cut = true;
  mix.left = edge(x - half);
  mix.right = edge(x + half);
  mix.top = edge(y - half);
  mix.bottom = edge(y + half);
  const double area = static_cast<double>(mix.right - mix.left) * (mix.bottom - mix.top);
  mix.share = static_cast<float>(1 - area / (static_cast<double>(size) * size));
}

}  // namespace

Mix MixAt(const MixOptions& options, uint64_t seed, uint64_t position, uint32_t global_batch,
          int image_size) {
  Draws draws(seed, position);
  Mix mix;
  mix.partner = position / global_batch * global_batch +
                uint64_t{draws.Word()} * global_batch / (uint64_t{1} << 32);
  const bool both = options.mixup_alpha > 0 && options.cutmix_alpha > 0;
  const bool first = draws.Uniform() < 0.5;
  const bool cut = both ? first : options.cutmix_alpha > 0;
  const double share = draws.Beta(cut ? options.cutmix_alpha : options.mixup_alpha);
  if (cut) {
    PlaceBox(share, image_size, draws, mix);
  } else {
    mix.share = static_cast<float>(share);
  }
  return mix;
}

void MixPixels(const Mix& mix, const float* partner_chw, int channels, int image_size,
               float* out_chw) {
  const auto side = static_cast<size_t>(image_size);
  const size_t plane = side * side;
  if (!mix.cut) {
    for (size_t i = 0; i < plane * static_cast<size_t>(channels); ++i) {
      out_chw[i] = mix.share * out_chw[i] + (1 - mix.share) * partner_chw[i];
    }
    return;
  }
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    for (auto y = static_cast<size_t>(mix.top); y < static_cast<size_t>(mix.bottom); ++y) {
      const size_t row = c * plane + y * side;
      std::copy(partner_chw + row + mix.left, partner_chw + row + mix.right,
                out_chw + row + mix.left);
    }
  }
}

}  // namespace tundish::data
