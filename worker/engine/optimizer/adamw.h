#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/model/parameter.h"

namespace tundish::optimizer {

/// Loshchilov and Hutter 2017, arXiv:1711.05101.
struct AdamWOptions {
  double weight_decay = 0.05;  ///< Applied only to parameters whose spec says so.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  /// A layer's rate is that of the one after it times this; the last layer has the full rate. 1:
  /// none. As timm's param_groups_layer_decay.
  double layer_decay = 1;
  int64_t last_layer = 0;  ///< The largest ParameterSpec::layer of the whole model.
};

/// Share of the learning rate that a parameter of `layer` gets.
double LayerRate(const AdamWOptions& options, int64_t layer);

/// One update of values and moments in place with the fused kernel.
/// `updates_before` is the number of updates these moments have seen (0 for the first).
/// `gradient_scale` multiplies every gradient first, in place: the gradients are spent afterwards.
/// Throws c10::Error naming the parameter when a gradient is missing.
void ApplyAdamW(std::vector<model::Parameter>& parameters, const AdamWOptions& options,
                double learning_rate, int64_t updates_before, double gradient_scale);

}  // namespace tundish::optimizer
