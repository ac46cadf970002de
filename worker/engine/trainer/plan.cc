#include "worker/engine/trainer/plan.h"

#include <algorithm>

#include <fmt/core.h>

#include "worker/engine/trainer/fatal_error.h"

namespace tundish::trainer {
namespace {

model::VitShape MakeShape(const v1::ModelSpec& spec, int classes) {
  model::VitShape shape;
  shape.image_size = spec.image_size();
  shape.patch_size = spec.patch_size();
  shape.channels = spec.channels();
  shape.hidden = spec.hidden();
  shape.depth = spec.depth();
  shape.heads = spec.heads();
  shape.mlp_hidden = spec.mlp_hidden();
  shape.classes = classes;
  shape.pooling = spec.pooling() == v1::MEAN ? model::Pooling::kMean : model::Pooling::kClassToken;
  shape.class_token = spec.has_class_token() ? spec.class_token() : spec.pooling() != v1::MEAN;
  shape.register_tokens = spec.register_tokens();
  shape.norm_after_pooling = spec.has_fc_norm() ? spec.fc_norm() : spec.pooling() == v1::MEAN;
  shape.prefix_positions = !spec.no_embed_class();
  shape.qk_norm = spec.qk_norm();
  shape.layer_scale = spec.layer_scale();
  shape.layer_norm_eps = spec.layer_norm_eps();
  shape.dropout = spec.dropout();
  shape.attention_dropout = spec.attention_dropout();
  shape.drop_path_rate = spec.drop_path_rate();
  return shape;
}

model::VitOptions MakeOptions(const v1::JobSpec& spec) {
  const v1::ParallelSpec& parallel = spec.parallel();
  return {.sharding = {.attention_heads = !parallel.has_shard_attention_heads() ||
                                          parallel.shard_attention_heads(),
                       .mlp_intermediate = !parallel.has_shard_mlp_intermediate() ||
                                           parallel.shard_mlp_intermediate(),
                       .embedding = parallel.shard_embedding(),
                       .sequence = parallel.sequence_parallel()},
          .recompute_every = spec.training().checkpoint_blocks(),
          .keep_average = spec.training().ema_decay() > 0};
}

optimizer::Schedule MakeSchedule(const v1::TrainingSpec& spec, uint32_t total_steps) {
  optimizer::Schedule schedule;
  switch (spec.schedule().kind()) {
    case v1::LINEAR:
      schedule.kind = optimizer::ScheduleKind::kLinear;
      break;
    case v1::CONSTANT:
      schedule.kind = optimizer::ScheduleKind::kConstant;
      break;
    default:
      schedule.kind = optimizer::ScheduleKind::kCosine;
  }
  schedule.peak = spec.optimizer().learning_rate();
  schedule.total_steps = total_steps;
  // The coordinator cannot fill in the default: it resolves specs before it knows the data.
  schedule.warmup_steps = spec.schedule().has_warmup_steps()
                              ? std::min(spec.schedule().warmup_steps(), total_steps)
                              : total_steps / 20;
  schedule.final_fraction = spec.schedule().final_fraction();
  return schedule;
}

}  // namespace

uint32_t TrainingPlan::DataEpochsAfter(uint32_t steps) const {
  return static_cast<uint32_t>(uint64_t{steps} * global_batch / train_images);
}

bool TrainingPlan::EvaluationDue(uint32_t steps) const {
  if (steps == 0) return false;
  if (steps >= total_steps) return true;
  if (evaluate_every_epochs == 0) return false;
  return DataEpochsAfter(steps) / evaluate_every_epochs !=
         DataEpochsAfter(steps - 1) / evaluate_every_epochs;
}

bool TrainingPlan::CheckpointDue(uint32_t steps) const {
  if (steps == 0) return false;
  if (checkpoint_every_steps > 0) return steps % checkpoint_every_steps == 0;
  return DataEpochsAfter(steps) != DataEpochsAfter(steps - 1);
}

TrainingPlan MakePlan(const v1::Assignment& assignment) {
  const v1::JobSpec& spec = assignment.spec();
  const v1::TrainingSpec& training = spec.training();
  TrainingPlan plan;
  plan.shape = MakeShape(spec.model(), assignment.data().classes_size());
  plan.model_options = MakeOptions(spec);
  plan.fresh_head = spec.model().fresh_head();
  const int tensor = std::max(1, spec.parallel().tensor());
  const int data = std::max(1, spec.parallel().data());
  if (const absl::Status valid = plan.shape.Validate(tensor, plan.model_options.sharding);
      !valid.ok()) {
    throw FatalError("wrong_placement", std::string(valid.message()));
  }
  plan.weights_file = spec.model().weights();
  plan.seed = training.seed();
  const v1::OptimizerSpec& adamw = training.optimizer();
  plan.adamw = {.weight_decay = adamw.weight_decay(),
                .beta1 = adamw.beta1(),
                .beta2 = adamw.beta2(),
                .eps = adamw.eps(),
                .layer_decay = adamw.layer_decay() > 0 ? adamw.layer_decay() : 1,
                .last_layer = plan.shape.depth + 1};
  plan.clip_norm = adamw.clip_norm();
  plan.total_steps = assignment.total_steps();
  plan.schedule = MakeSchedule(training, plan.total_steps);
  plan.loss = {.label_smoothing = training.label_smoothing(),
               .focal_gamma = training.focal_gamma()};
  plan.average_decay = training.ema_decay();
  plan.use_average = plan.average_decay > 0 && (!training.has_use_ema() || training.use_ema());
  plan.bf16 = training.precision() == v1::BF16;
  plan.global_batch = training.global_batch();
  // A replica without a sample would have no gradient to reduce.
  if (plan.global_batch < static_cast<uint32_t>(data)) {
    throw FatalError(
        "wrong_placement",
        fmt::format("global_batch {} must be at least parallel.data {}", plan.global_batch, data));
  }
  plan.micro_batch =
      training.micro_batch() > 0 ? training.micro_batch() : (plan.global_batch + data - 1) / data;
  plan.train_images = std::max(1U, assignment.data().train_images());
  plan.evaluate_every_epochs = spec.evaluation().every_epochs();
  plan.checkpoint_every_steps = spec.checkpoints().every_steps();
  plan.check_replicas_every_steps = training.check_replicas_every_steps();
  plan.skip_non_finite = training.on_non_finite() == v1::SKIP_STEP;
  plan.max_skipped_steps = training.max_skipped_steps();
  if (spec.trace().steps_size() == 2) {
    plan.trace_first = spec.trace().steps(0);
    plan.trace_last = spec.trace().steps(1);
  }
  plan.threads = std::max(1, spec.parallel().threads_per_rank());
  return plan;
}

Place MakePlace(const v1::Assignment& assignment) {
  Place place;
  place.dp = assignment.dp();
  place.tp = assignment.tp();
  place.tensor_degree = std::max(1, assignment.spec().parallel().tensor());
  place.data_degree = std::max(1, assignment.spec().parallel().data());
  if (place.dp < 0 || place.dp >= place.data_degree || place.tp < 0 ||
      place.tp >= place.tensor_degree ||
      assignment.members_size() != place.data_degree * place.tensor_degree) {
    throw FatalError("wrong_placement",
                     fmt::format("rank (dp {}, tp {}) of {} members does not fit parallel.data {} "
                                 "and parallel.tensor {}",
                                 place.dp, place.tp, assignment.members_size(), place.data_degree,
                                 place.tensor_degree));
  }
  const v1::Member& self = assignment.members(place.dp * place.tensor_degree + place.tp);
  place.device = self.devices_size() > 0 ? self.devices(0) : "cpu:0";
  place.bind_address = self.data_address().empty() ? "127.0.0.1" : self.data_address();
  if (assignment.collective_timeout_seconds() > 0) {
    place.collective_timeout = std::chrono::seconds(assignment.collective_timeout_seconds());
  }
  return place;
}

}  // namespace tundish::trainer
