#include "server/spec/defaults.h"

#include <cstdint>

#include "server/spec/presets.h"

namespace tundish::spec {
namespace {

void FillData(v1::DataSpec& data) {
  if (!data.has_validation_fraction()) data.set_validation_fraction(0.2);
  if (data.bad_files() == v1::BAD_FILE_POLICY_UNSPECIFIED) data.set_bad_files(v1::FAIL);
  if (data.bad_files() == v1::SKIP && !data.has_max_bad_fraction()) data.set_max_bad_fraction(0.05);
  if (data.augment().min_crop_area() == 0) data.mutable_augment()->set_min_crop_area(1);
  if (data.mean().empty()) data.add_mean(0.5f);
  if (data.std().empty()) data.add_std(0.5f);
  if (!data.has_cache_bytes()) data.set_cache_bytes(std::uint64_t{256} << 20);
}

void FillModel(v1::ModelSpec& model) {
  v1::ModelSpec shape;
  if (const auto preset = FindPreset(model.preset())) shape = *preset;
  // With another width the preset's MLP width no longer fits: four times the new one does.
  if (model.hidden() != 0) shape.set_mlp_hidden(0);
  shape.MergeFrom(model);
  model = shape;
  if (model.mlp_hidden() == 0 && model.hidden() > 0 && model.hidden() <= INT32_MAX / 4) {
    model.set_mlp_hidden(4 * model.hidden());
  }
  if (model.channels() == 0) model.set_channels(3);
  if (model.pooling() == v1::POOLING_UNSPECIFIED) model.set_pooling(v1::CLASS_TOKEN);
  if (model.layer_norm_eps() == 0) model.set_layer_norm_eps(1e-6);
}

void FillParallel(v1::ParallelSpec& parallel) {
  if (parallel.tensor() == 0) parallel.set_tensor(1);
  if (parallel.data() == 0) parallel.set_data(1);
  if (parallel.device().empty()) parallel.set_device("cpu");
  if (parallel.threads_per_rank() == 0) parallel.set_threads_per_rank(1);
}

void FillOptimizer(v1::OptimizerSpec& optimizer) {
  if (optimizer.learning_rate() == 0) optimizer.set_learning_rate(3e-5);
  if (!optimizer.has_weight_decay()) optimizer.set_weight_decay(0.05);
  if (!optimizer.has_beta1()) optimizer.set_beta1(0.9);
  if (!optimizer.has_beta2()) optimizer.set_beta2(0.999);
  if (optimizer.eps() == 0) optimizer.set_eps(1e-8);
  if (!optimizer.has_clip_norm()) optimizer.set_clip_norm(1.0);
}

void FillTraining(v1::TrainingSpec& training, std::int32_t replicas) {
  if (training.micro_batch() == 0 && replicas > 0) {
    const auto data = static_cast<std::uint32_t>(replicas);
    training.set_micro_batch(training.global_batch() / data +
                             (training.global_batch() % data != 0 ? 1 : 0));
  }
  if (training.precision() == v1::PRECISION_UNSPECIFIED) training.set_precision(v1::FP32);
  FillOptimizer(*training.mutable_optimizer());
  v1::ScheduleSpec& schedule = *training.mutable_schedule();
  if (schedule.kind() == v1::SCHEDULE_KIND_UNSPECIFIED) schedule.set_kind(v1::COSINE);
  if (!schedule.has_warmup_steps() && training.steps() > 0) {
    schedule.set_warmup_steps(training.steps() / 20);
  }
  if (training.class_weights() == v1::CLASS_WEIGHTING_UNSPECIFIED) {
    training.set_class_weights(v1::NONE);
  }
}

}  // namespace

void FillDefaults(v1::JobSpec& spec) {
  if (spec.tenant().empty()) spec.set_tenant("default");
  FillData(*spec.mutable_data());
  FillModel(*spec.mutable_model());
  FillParallel(*spec.mutable_parallel());
  FillTraining(*spec.mutable_training(), spec.parallel().data());
  if (!spec.evaluation().has_every_epochs()) spec.mutable_evaluation()->set_every_epochs(1);
  if (spec.checkpoints().keep_last() == 0) spec.mutable_checkpoints()->set_keep_last(2);
  if (!spec.recovery().has_max_failures()) spec.mutable_recovery()->set_max_failures(20);
  if (!spec.recovery().has_warm_spares()) spec.mutable_recovery()->set_warm_spares(1);
  if (spec.recovery().step_deadline_seconds() == 0) {
    spec.mutable_recovery()->set_step_deadline_seconds(300);
  }
  if (!spec.recovery().has_shrink()) spec.mutable_recovery()->set_shrink(true);
  if (spec.recovery().min_data() == 0) spec.mutable_recovery()->set_min_data(1);
  if (spec.recovery().wait_seconds() == 0) spec.mutable_recovery()->set_wait_seconds(60);
}

}  // namespace tundish::spec
