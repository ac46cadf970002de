#pragma once

#include <vector>

#include "worker/engine/model/parameter.h"

namespace tundish::optimizer {

/// This rank's share of the squared global gradient norm: its slices of cut parameters, and the
/// replicated ones on tensor rank 0 only, so that the sum over the tensor group counts every
/// element once. Accumulated in double in a fixed order: equal gradients give equal bits on every
/// replica. Throws c10::Error naming the parameter when a gradient is missing.
double LocalNormSquared(const std::vector<model::Parameter>& parameters, int tensor_rank);

/// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (no clipping). Requires norm >= 0.
double ClipCoefficient(double norm, double max_norm);

}  // namespace tundish::optimizer
