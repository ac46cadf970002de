#include "worker/engine/trainer/warm_up.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "worker/engine/optimizer/adamw.h"
#include "worker/engine/optimizer/gradient_norm.h"
#include "worker/engine/trainer/autocast.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

void WarmUpStep(const v1::JobSpec& spec) {
  constexpr uint32_t kImages = 2;
  v1::Assignment assignment;
  *assignment.mutable_spec() = spec;
  assignment.mutable_spec()->mutable_model()->set_depth(1);
  assignment.mutable_spec()->mutable_model()->clear_weights();
  assignment.mutable_spec()->mutable_parallel()->set_tensor(1);
  assignment.mutable_spec()->mutable_parallel()->set_data(1);
  assignment.mutable_data()->add_classes("a");
  assignment.mutable_data()->add_classes("b");
  assignment.set_total_steps(std::max(1U, spec.training().steps()));
  assignment.add_members();
  const TrainingPlan plan = MakePlan(assignment);
  Shard shard(plan, MakePlace(assignment), at::kCPU);
  shard.model.InitializeFromSeed(plan.seed);
  const at::Tensor pixels_bchw =
      at::full({kImages, plan.shape.channels, plan.shape.image_size, plan.shape.image_size}, 0.5);
  const at::Tensor labels_b = at::zeros({kImages}, at::kLong);
  at::Tensor logits_bc;
  {
    const AutocastScope autocast(c10::DeviceType::CPU, plan.bf16);
    logits_bc = shard.model.Forward(pixels_bchw, model::DropPathKey{.seed = plan.seed});
  }
  at::cross_entropy_loss(logits_bc.to(at::kFloat), labels_b).backward();
  optimizer::LocalNormSquared(shard.model.parameters(), 0);
  optimizer::ApplyAdamW(shard.model.parameters(), plan.adamw, 1e-3, 0, 1.0);
}

}  // namespace tundish::trainer
