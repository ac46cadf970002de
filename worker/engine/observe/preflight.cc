#include "worker/engine/observe/preflight.h"

#include <algorithm>
#include <chrono>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

namespace tundish::observe {
namespace {

using Clock = std::chrono::steady_clock;

double BestOfThree(at::Device device, at::ScalarType type,
                   const std::function<void()>& synchronize) {
  constexpr int64_t kSide = 192;  // 14 MFLOP
  const at::Tensor a = at::ones({kSide, kSide}, at::TensorOptions(type).device(device));
  at::Tensor product = at::mm(a, a);
  synchronize();
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    product = at::mm(a, a);
    synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

MatmulSpeed MeasureMatmul(at::Device device, const std::function<void()>& synchronize) {
  const c10::AutoGradMode no_grad(false);
  return {.fp32_seconds = BestOfThree(device, at::kFloat, synchronize),
          .bf16_seconds = BestOfThree(device, at::kBFloat16, synchronize)};
}

}  // namespace tundish::observe
