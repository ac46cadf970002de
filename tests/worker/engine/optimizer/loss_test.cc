#include "worker/engine/optimizer/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace tundish::optimizer {
namespace {

constexpr int64_t kBatch = 7;
constexpr int64_t kClasses = 5;

/// The definition, in double precision: sum over samples and classes of target x (1 - p)^gamma x
/// -log p, the target being the weighted, smoothed labels.
at::Tensor Reference(const at::Tensor& logits, const Targets& targets, const LossOptions& options) {
  const auto smoothed = [&](const at::Tensor& labels, const at::Tensor& weights) {
    const at::Tensor hard = at::one_hot(labels, kClasses).to(at::kDouble);
    const at::Tensor soft = hard * (1 - options.label_smoothing) +
                            options.label_smoothing / static_cast<double>(kClasses);
    return soft * weights.to(at::kDouble).unsqueeze(1);
  };
  at::Tensor target = smoothed(targets.labels_b, targets.weights_b);
  if (targets.partner_labels_b.defined()) {
    target = target + smoothed(targets.partner_labels_b, targets.partner_weights_b);
  }
  const at::Tensor log_p = at::log_softmax(logits, 1);
  return (target * at::pow(1 - log_p.exp(), options.focal_gamma) * -log_p).sum();
}

TEST(WeightedLossTest, FollowsTheDefinitionWithGradients) {
  for (const bool mixed : {false, true}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const double gamma : {0.0, 0.5, 2.0}) {
        SCOPED_TRACE(testing::Message() << mixed << " " << smoothing << " " << gamma);
        const at::Tensor start = at::randn({kBatch, kClasses}) * 3;
        Targets targets{.labels_b = at::randint(0, kClasses, {kBatch}, at::kLong),
                        .weights_b = at::rand({kBatch}) + 0.1};
        if (mixed) {
          targets.partner_labels_b = at::randint(0, kClasses, {kBatch}, at::kLong);
          targets.partner_weights_b = at::rand({kBatch});
        }
        const LossOptions options{.label_smoothing = smoothing, .focal_gamma = gamma};
        const at::Tensor logits = start.clone().requires_grad_(true);
        const at::Tensor exact = start.to(at::kDouble).requires_grad_(true);
        const at::Tensor loss = WeightedLoss(logits, targets, options);
        const at::Tensor want = Reference(exact, targets, options);
        EXPECT_NEAR(loss.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
        torch::autograd::backward({loss, want}, {});
        EXPECT_LE((logits.grad().to(at::kDouble) - exact.grad()).abs().max().item<double>(), 2e-6);
      }
    }
  }
}

TEST(WeightedLossTest, FocalGradientsStayFiniteWhereTheModelIsSure) {
  at::Tensor logits = at::zeros({2, kClasses});
  logits[0][1] = 200;
  logits[1][1] = -200;
  logits.requires_grad_(true);
  const Targets targets{.labels_b = at::one_hot(at::zeros({2}, at::kLong) + 1, 2).select(1, 1),
                        .weights_b = at::zeros({2}) + 1};
  const at::Tensor loss = WeightedLoss(logits, targets, {.focal_gamma = 0.5});
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE(loss.isfinite().item<bool>());
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace tundish::optimizer
