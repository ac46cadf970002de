#include "worker/engine/model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "worker/random/philox.h"

namespace tundish::model {
namespace {

/// FNV-1a: a stable name for the parameter's stream of draws.
uint64_t NameHash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

/// In (0, 1).
double Uniform(uint32_t bits) {
  return (static_cast<double>(bits) + 0.5) / 4294967296.0;
}

/// Four normal draws by Box and Muller 1958 from one counter of a parameter's own stream.
std::array<double, 4> NormalQuad(uint64_t seed, uint64_t stream, uint64_t counter) {
  const std::array<uint32_t, 4> draw =
      random::Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  std::array<double, 4> normal;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2 * std::log(Uniform(draw[pair])));
    const double angle = 2 * std::numbers::pi * Uniform(draw[pair + 1]);
    normal[pair] = radius * std::cos(angle);
    normal[pair + 1] = radius * std::sin(angle);
  }
  return normal;
}

/// A normal draw within `limit` deviations for an element whose first draw lay beyond it: tries
/// counters that no first draw uses (the top bit is set).
double Redraw(uint64_t seed, uint64_t stream, uint64_t element, double limit) {
  for (uint64_t attempt = 0;; ++attempt) {
    const uint64_t counter = (uint64_t{1} << 63) | (attempt << 48) | element;
    for (const double normal : NormalQuad(seed, stream, counter)) {
      if (std::abs(normal) <= limit) return normal;
    }
  }
}

/// Element i is a function of (seed, name, i) alone.
at::Tensor Normal(const ParameterSpec& spec, uint64_t seed, double deviation, double limit) {
  const uint64_t stream = NameHash(spec.name);
  at::Tensor value = at::empty(spec.full_shape, at::kFloat);
  const std::span<float> out(value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel()));
  for (size_t first = 0; first < out.size(); first += 4) {
    const std::array<double, 4> quad = NormalQuad(seed, stream, first / 4);
    for (size_t i = first; i < std::min(first + 4, out.size()); ++i) {
      double normal = quad[i - first];
      if (std::abs(normal) > limit) normal = Redraw(seed, stream, i, limit);
      out[i] = static_cast<float>(deviation * normal);
    }
  }
  return value;
}

}  // namespace

at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed) {
  switch (spec.start) {
    case Start::kZeros:
      return at::zeros(spec.full_shape, at::kFloat);
    case Start::kOnes:
      return at::ones(spec.full_shape, at::kFloat);
    case Start::kConstant:
      return at::full(spec.full_shape, spec.start_value, at::kFloat);
    case Start::kTinyNormal:
      return Normal(spec, seed, 1e-6, 6);
    case Start::kTruncatedNormal:
      // timm cuts at an absolute 2, a hundred deviations; two deviations is what the papers do.
      return Normal(spec, seed, 0.02, 2);
    case Start::kPatchProjection: {
      const double fan_in =
          static_cast<double>(spec.full_numel()) / static_cast<double>(spec.full_shape[0]);
      return Normal(spec, seed, 1 / std::sqrt(fan_in), 2);
    }
  }
  TORCH_CHECK(false, spec.name, " has no known start");
}

}  // namespace tundish::model
