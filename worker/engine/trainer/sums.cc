#include "worker/engine/trainer/sums.h"

#include <cmath>

#include <fmt/core.h>

#include "worker/engine/trainer/fatal_error.h"

namespace tundish::trainer {

double GlobalNorm(const v1::StepSums& sums, int tensor_degree) {
  double squared = 0;
  for (int tp = 0; tp < tensor_degree; ++tp) {
    if (tp >= sums.norm_squared_bits_size() || tp >= sums.norm_known_size() ||
        !sums.norm_known(tp)) {
      throw FatalError(
          "wrong_start_point",
          fmt::format("the norm of tensor rank {} of {} is not known", tp, tensor_degree));
    }
    squared += FromBits(sums.norm_squared_bits(tp));
  }
  return std::sqrt(squared);
}

double GlobalLoss(const v1::StepSums& sums) {
  return static_cast<double>(FromBits(sums.loss_sum_bits())) / FromBits(sums.weight_sum_bits());
}

bool YieldWanted(const v1::StepSums& sums) {
  return FromBits(sums.yield_bits()) > 0;
}

bool AllFinite(const v1::StepSums& sums) {
  return !(FromBits(sums.nonfinite_bits()) > 0);
}

}  // namespace tundish::trainer
