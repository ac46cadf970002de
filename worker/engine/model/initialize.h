#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/parameter.h"

namespace tundish::model {

/// The whole initial value of a parameter, fp32 on the CPU: a pure function of (seed, spec.name,
/// spec.full_shape, spec.start), independent of threads and of the tensor degree.
at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed);

}  // namespace tundish::model
