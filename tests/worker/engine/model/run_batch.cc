#include "tests/worker/engine/model/run_batch.h"

#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker/engine/parallel/thread_group.h"

namespace tundish::model {

double Deviation(const at::Tensor& a, const at::Tensor& b) {
  const double scale = b.abs().max().item<double>();
  return (a - b).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

Outcome RunBatch(const VitShape& shape, int degree, const at::Tensor& images,
                 const at::Tensor& labels, std::optional<MaskKey> key, const VitOptions& options) {
  Outcome outcome;
  for (const ParameterSpec& spec : ListParameters(shape, options.sharding)) {
    outcome.values[spec.name] = at::zeros(spec.full_shape);
    outcome.gradients[spec.name] = at::zeros(spec.full_shape);
  }
  std::mutex mutex;
  parallel::RunRanks(degree, [&](parallel::GroupSlot& slot) {
    at::set_num_threads(1);
    Vit vit(shape, slot, at::kCPU, options);
    vit.InitializeFromSeed(42);
    const at::Tensor logits = vit.Forward(images, key);
    torch::autograd::backward({at::cross_entropy_loss(logits, labels)}, {});
    vit.SumPartialGradients();
    const std::lock_guard lock(mutex);
    const bool first = !outcome.logits.defined();
    if (!first) {
      EXPECT_TRUE(at::equal(outcome.logits, logits.detach())) << "ranks disagree on the logits";
    }
    outcome.logits = logits.detach();
    for (const Parameter& parameter : vit.parameters()) {
      const ParameterSpec& spec = parameter.spec;
      if (!parameter.sharded() && !first) {
        EXPECT_TRUE(at::equal(outcome.gradients[spec.name], parameter.value.grad()))
            << "ranks disagree on the gradient of " << spec.name;
      }
      PlaceSlice(outcome.values[spec.name], parameter.value.detach(), spec, slot.rank(), degree);
      PlaceSlice(outcome.gradients[spec.name], parameter.value.grad(), spec, slot.rank(), degree);
    }
  });
  return outcome;
}

}  // namespace tundish::model
