#include "worker/engine/optimizer/gradient_norm.h"

#include <algorithm>
#include <array>

#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

namespace tundish::optimizer {
namespace {

/// Eight running sums, so that the compiler may use vector registers without changing the order.
double SumOfSquares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) total += static_cast<double>(values[i]) * values[i];
  return total;
}

double SumOfSquares(const at::Tensor& gradient) {
  if (gradient.device().is_cpu() && gradient.scalar_type() == at::kFloat) {
    const at::Tensor flat = gradient.contiguous();
    return SumOfSquares(flat.const_data_ptr<float>(), flat.numel());
  }
  return gradient.detach().to(at::kDouble).square().sum().item<double>();
}

}  // namespace

double LocalNormSquared(const std::vector<model::Parameter>& parameters, int tensor_rank) {
  double total = 0;
  for (const model::Parameter& parameter : parameters) {
    if (!parameter.sharded() && tensor_rank != 0) continue;
    const at::Tensor& gradient = parameter.value.grad();
    TORCH_CHECK(gradient.defined(), "parameter '", parameter.spec.name, "' has no gradient");
    total += SumOfSquares(gradient);
  }
  return total;
}

double ClipCoefficient(double norm, double max_norm) {
  TORCH_CHECK(norm >= 0, "a gradient norm of ", norm, " is not a norm");
  return max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tundish::optimizer
