#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace tundish::observe {

/// Seconds one small matrix product takes on a device.
struct MatmulSpeed {
  double fp32_seconds = 0;
  double bf16_seconds = 0;
};

/// The best of three of each, after a warm-up. `synchronize` returns when the device is done.
/// Milliseconds where bf16 is fast; a tenth of a second where it is emulated.
MatmulSpeed MeasureMatmul(at::Device device, const std::function<void()>& synchronize);

}  // namespace tundish::observe
