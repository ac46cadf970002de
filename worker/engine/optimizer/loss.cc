#include "worker/engine/optimizer/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

namespace tundish::optimizer {
namespace {

/// Weight of each class for each sample.
at::Tensor SoftTargets(const at::Tensor& logits_bc, const Targets& targets, double smoothing) {
  const c10::AutoGradMode no_grad(false);
  at::Tensor target_bc = at::zeros_like(logits_bc);
  at::Tensor total_b = targets.weights_b;
  target_bc.scatter_add_(1, targets.labels_b.unsqueeze(1), targets.weights_b.unsqueeze(1));
  if (targets.partner_labels_b.defined()) {
    target_bc.scatter_add_(1, targets.partner_labels_b.unsqueeze(1),
                           targets.partner_weights_b.unsqueeze(1));
    total_b = total_b + targets.partner_weights_b;
  }
  if (smoothing == 0) return target_bc;
  const double spread = smoothing / static_cast<double>(logits_bc.size(1));
  return target_bc * (1 - smoothing) + total_b.unsqueeze(1) * spread;
}

}  // namespace

at::Tensor WeightedLoss(const at::Tensor& logits_bc, const Targets& targets,
                        const LossOptions& options) {
  if (options.focal_gamma == 0 && !targets.partner_labels_b.defined()) {
    const at::Tensor loss_b = at::cross_entropy_loss(
        logits_bc, targets.labels_b, /*weight=*/{}, /*reduction=*/at::Reduction::None,
        /*ignore_index=*/-100, options.label_smoothing);
    return (loss_b * targets.weights_b).sum();
  }
  const at::Tensor log_p_bc = at::log_softmax(logits_bc, 1);
  at::Tensor loss_bc = -log_p_bc;
  if (options.focal_gamma > 0) {
    // The floor keeps the slope of a fractional power finite where p rounds to 1.
    loss_bc = loss_bc * at::pow((1 - log_p_bc.exp()).clamp_min(1e-7), options.focal_gamma);
  }
  return (loss_bc * SoftTargets(logits_bc, targets, options.label_smoothing)).sum();
}

}  // namespace tundish::optimizer
