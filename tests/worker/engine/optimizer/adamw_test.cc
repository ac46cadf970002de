#include "worker/engine/optimizer/adamw.h"

#include <cmath>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "worker/engine/model/parameter_arena.h"
#include "worker/engine/optimizer/gradient_norm.h"

namespace tundish::optimizer {
namespace {

using model::Cut;
using model::ParameterSpec;

std::vector<ParameterSpec> Specs() {
  return {{"w", Cut::kRows, {8, 5}, true}, {"b", Cut::kReplicated, {7}, false}};
}

/// AdamW as the paper writes it (algorithm 2), in double precision.
struct Reference {
  at::Tensor value, exp_avg, exp_avg_sq;

  void Update(const at::Tensor& gradient, const AdamWOptions& o, double rate, bool decay,
              int update) {
    exp_avg = o.beta1 * exp_avg + (1 - o.beta1) * gradient;
    exp_avg_sq = o.beta2 * exp_avg_sq + (1 - o.beta2) * gradient * gradient;
    const at::Tensor mean = exp_avg / (1 - std::pow(o.beta1, update));
    const at::Tensor square = exp_avg_sq / (1 - std::pow(o.beta2, update));
    value = value - rate * (mean / (square.sqrt() + o.eps) + (decay ? o.weight_decay : 0) * value);
  }
};

TEST(ApplyAdamWTest, FollowsADoublePrecisionReference) {
  const AdamWOptions options{.weight_decay = 0.3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
  model::ParameterArena arena(Specs(), 1, at::kCPU);
  std::map<std::string, Reference> references;
  for (model::Parameter& parameter : arena.parameters()) {
    const c10::AutoGradMode no_grad(false);
    parameter.value.copy_(at::randn(parameter.spec.full_shape));
    const at::Tensor zeros = at::zeros(parameter.spec.full_shape, at::kDouble);
    references[parameter.spec.name] = {parameter.value.detach().to(at::kDouble), zeros, zeros};
  }
  for (int update = 1; update <= 50; ++update) {
    const double rate = 0.01 / update;
    const double scale = update % 3 == 0 ? 0.5 : 1;
    for (model::Parameter& parameter : arena.parameters()) {
      const at::Tensor gradient = at::randn(parameter.spec.full_shape);
      parameter.value.mutable_grad() = gradient.clone();
      references[parameter.spec.name].Update(gradient.to(at::kDouble) * scale, options, rate,
                                             parameter.spec.decay, update);
    }
    ApplyAdamW(arena.parameters(), options, rate, update - 1, scale);
  }
  for (const model::Parameter& parameter : arena.parameters()) {
    const Reference& want = references[parameter.spec.name];
    const auto deviation = [](const at::Tensor& got, const at::Tensor& wanted) {
      return (got.detach().to(at::kDouble) - wanted).abs().max().item<double>();
    };
    EXPECT_LE(deviation(parameter.value, want.value), 1e-5) << parameter.spec.name;
    EXPECT_LE(deviation(parameter.exp_avg, want.exp_avg), 1e-6) << parameter.spec.name;
    EXPECT_LE(deviation(parameter.exp_avg_sq, want.exp_avg_sq), 1e-6) << parameter.spec.name;
  }
}

TEST(ApplyAdamWTest, ALayersRateFallsTowardsTheEmbedding) {
  const AdamWOptions options{.weight_decay = 0.5, .layer_decay = 0.5, .last_layer = 3};
  EXPECT_DOUBLE_EQ(LayerRate(options, 3), 1);
  EXPECT_DOUBLE_EQ(LayerRate(options, 0), 0.125);
  EXPECT_DOUBLE_EQ(LayerRate({}, 0), 1);
  std::vector<ParameterSpec> specs;
  for (int64_t layer = 0; layer <= 3; ++layer) {
    ParameterSpec spec{"w" + std::to_string(layer), Cut::kReplicated, {4, 4}, layer % 2 == 0};
    spec.layer = layer;
    specs.push_back(spec);
  }
  model::ParameterArena together(specs, 1, at::kCPU);
  for (model::Parameter& parameter : together.parameters()) {
    const c10::AutoGradMode no_grad(false);
    parameter.value.copy_(at::randn({4, 4}));
    parameter.value.mutable_grad() = at::randn({4, 4});
  }
  std::vector<at::Tensor> want;
  for (size_t i = 0; i < specs.size(); ++i) {
    model::ParameterArena alone({specs[i]}, 1, at::kCPU);
    const c10::AutoGradMode no_grad(false);
    alone.parameters()[0].value.copy_(together.parameters()[i].value);
    alone.parameters()[0].value.mutable_grad() = together.parameters()[i].value.grad().clone();
    ApplyAdamW(alone.parameters(), {.weight_decay = 0.5}, 0.1 * LayerRate(options, specs[i].layer),
               0, 1);
    want.push_back(alone.parameters()[0].value.detach().clone());
  }
  ApplyAdamW(together.parameters(), options, 0.1, 0, 1);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_TRUE(at::equal(together.parameters()[i].value.detach(), want[i])) << "layer " << i;
  }
}

TEST(ParameterArenaTest, TheAverageFollowsTheValues) {
  model::ParameterArena arena(Specs(), 1, at::kCPU, /*keep_average=*/true);
  EXPECT_EQ(arena.state().numel(), 4 * arena.section_numel());
  const c10::AutoGradMode no_grad(false);
  arena.parameters()[1].value.fill_(1);
  arena.StartAverage();
  arena.parameters()[1].value.fill_(3);
  arena.UpdateAverage(0.75);
  EXPECT_FLOAT_EQ(arena.parameters()[1].average[0].item<float>(), 1.5F);
  EXPECT_FLOAT_EQ(arena.parameters()[1].value[0].item<float>(), 3);
  EXPECT_FLOAT_EQ(arena.parameters()[1].exp_avg[0].item<float>(), 0);
}

TEST(ApplyAdamWTest, NamesAParameterWithoutGradient) {
  model::ParameterArena arena(Specs(), 1, at::kCPU);
  arena.parameters()[0].value.mutable_grad() = at::randn({8, 5});
  try {
    ApplyAdamW(arena.parameters(), {}, 1e-3, 0, 1);
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("'b' has no gradient"), std::string::npos);
  }
}

TEST(GradientNormTest, CountsEveryElementOnceOverTheGroup) {
  const at::Tensor w = at::randn({8, 5});
  const at::Tensor b = at::randn({7});
  const double want = w.to(at::kDouble).square().sum().item<double>() +
                      b.to(at::kDouble).square().sum().item<double>();
  for (const int degree : {1, 2, 4}) {
    double total = 0;
    for (int rank = 0; rank < degree; ++rank) {
      model::ParameterArena arena(Specs(), degree, at::kCPU);
      std::vector<model::Parameter>& parameters = arena.parameters();
      parameters[0].value.mutable_grad() = model::CutForRank(w, parameters[0].spec, rank, degree);
      parameters[1].value.mutable_grad() = b.clone();
      total += LocalNormSquared(parameters, rank);
    }
    EXPECT_NEAR(total, want, 1e-12 * want) << "degree " << degree;
  }
}

TEST(GradientNormTest, ClipsOnlyWhatIsTooLong) {
  EXPECT_DOUBLE_EQ(ClipCoefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(ClipCoefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipCoefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(ClipCoefficient(1e9, 0), 1) << "0 means no clipping";
}

}  // namespace
}  // namespace tundish::optimizer
