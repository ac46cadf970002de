#include "worker/engine/optimizer/adamw.h"

#include <cmath>
#include <map>
#include <utility>

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace tundish::optimizer {
namespace {

struct TensorGroup {
  std::vector<at::Tensor> values, gradients, exp_avgs, exp_avg_sqs, steps;
};

}  // namespace

double LayerRate(const AdamWOptions& options, int64_t layer) {
  return options.layer_decay == 1
             ? 1
             : std::pow(options.layer_decay, static_cast<double>(options.last_layer - layer));
}

void ApplyAdamW(std::vector<model::Parameter>& parameters, const AdamWOptions& options,
                double learning_rate, int64_t updates_before, double gradient_scale) {
  if (parameters.empty()) return;
  const c10::AutoGradMode no_grad(false);
  // The fused kernel takes the number of the update it is doing and does not advance it.
  const at::Tensor step = at::full({}, static_cast<double>(updates_before + 1),
                                   parameters.front().value.options().requires_grad(false));
  // By share of the rate, and without and with weight decay: 0 and 1.
  std::map<std::pair<double, bool>, TensorGroup> groups;
  for (model::Parameter& parameter : parameters) {
    const at::Tensor& gradient = parameter.value.grad();
    TORCH_CHECK(gradient.defined(), "parameter '", parameter.spec.name, "' has no gradient");
    TensorGroup& group = groups[{LayerRate(options, parameter.spec.layer), parameter.spec.decay}];
    group.values.push_back(parameter.value);
    group.gradients.push_back(gradient);
    group.exp_avgs.push_back(parameter.exp_avg);
    group.exp_avg_sqs.push_back(parameter.exp_avg_sq);
    group.steps.push_back(step);
  }
  for (auto& [key, group] : groups) {
    const auto [rate, decays] = key;
    if (gradient_scale != 1) at::_foreach_mul_(group.gradients, gradient_scale);
    at::_fused_adamw_(group.values, group.gradients, group.exp_avgs, group.exp_avg_sqs,
                      /*max_exp_avg_sqs=*/{}, group.steps, rate * learning_rate, options.beta1,
                      options.beta2, decays ? options.weight_decay : 0, options.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

}  // namespace tundish::optimizer
