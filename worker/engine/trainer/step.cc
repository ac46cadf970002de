#include "worker/engine/trainer/step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include "worker/engine/optimizer/adamw.h"
#include "worker/engine/optimizer/gradient_norm.h"
#include "worker/engine/optimizer/schedule.h"
#include "worker/engine/trainer/autocast.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/sums.h"

namespace tundish::trainer {
namespace {

// The control vector of a column, and behind the norm slots of a row.
enum ControlSlot { kLossSum, kWeightSum, kNonFinite, kYield, kControlSlots };

}  // namespace

v1::StepDone Commit(const TrainingPlan& plan, const Place& place, Shard& shard,
                    const v1::StepSums& sums) {
  TORCH_CHECK(shard.phase == v1::REDUCED, "step ", shard.step, " is not reduced");
  const double norm = GlobalNorm(sums, place.tensor_degree);
  const double loss = GlobalLoss(sums);
  if (!AllFinite(sums) || !std::isfinite(norm) || !std::isfinite(loss)) {
    throw FatalError("non_finite_loss",
                     fmt::format("step {} has loss {} and gradient norm {}; a lower learning rate "
                                 "or clip_norm would help",
                                 shard.step, loss, norm));
  }
  const double learning_rate = optimizer::LearningRate(plan.schedule, shard.step);
  optimizer::ApplyAdamW(shard.model.parameters(), plan.adamw, learning_rate, shard.updates,
                        optimizer::ClipCoefficient(norm, plan.clip_norm));
  v1::StepDone done;
  done.set_step(shard.step);
  done.set_data_epoch(plan.DataEpochsAfter(shard.step));
  done.set_loss(loss);
  done.set_gradient_norm(norm);
  done.set_learning_rate(learning_rate);
  *done.mutable_time() = shard.reduced_time;
  // The place may be another than the one the step was computed in.
  done.mutable_time()->set_dp(place.dp);
  done.mutable_time()->set_tp(place.tp);
  shard.step += 1;
  shard.updates += 1;
  shard.phase = v1::COMPUTING;
  shard.committed_sums = sums;
  return done;
}

StepRunner::StepRunner(const TrainingPlan& plan, const Place& place, Shard& shard,
                       Arrangement& arrangement, device::Backend& backend, TrainerEvents& events)
    : plan_(plan),
      place_(place),
      shard_(shard),
      arrangement_(arrangement),
      backend_(backend),
      events_(events) {
  if (arrangement.column()) {
    reducer_ = std::make_unique<GradientReducer>(shard.model.parameters(), *arrangement.column());
  }
}

void StepRunner::Run(data::BatchLoader& loader) {
  const uint32_t step = shard_.step;
  step_start_ = std::chrono::steady_clock::now();
  lap_start_ = step_start_;
  time_.Clear();
  time_.set_dp(place_.dp);
  time_.set_tp(place_.tp);

  const data::Batch batch = Fetch(loader);
  time_.set_data_wait_seconds(Lap());
  events_.OnPoint(StepPoint::kFetched, step);

  const float loss_sum = ForwardBackward(batch);
  events_.OnPoint(StepPoint::kBackwardDone, step);

  ReduceControl(batch, loss_sum);
  events_.OnPoint(StepPoint::kReduced, step);

  const v1::StepSums sums = ShareOverRow();
  time_.set_exposed_reduce_seconds(time_.exposed_reduce_seconds() + Lap());
  events_.OnPoint(StepPoint::kShared, step);

  v1::StepDone done = Commit(plan_, place_, shard_, sums);
  yield_agreed_ = YieldWanted(sums);
  backend_.Synchronize();
  time_.set_commit_seconds(Lap());
  events_.OnPoint(StepPoint::kCommitted, step);

  time_.set_step_seconds(std::chrono::duration<double>(lap_start_ - step_start_).count());
  *done.mutable_time() = time_;
  done.set_memory_bytes(backend_.Memory().used_bytes);
  events_.OnStepDone(done);
}

data::Batch StepRunner::Fetch(data::BatchLoader& loader) {
  arrangement_.ThrowIfAborted();
  absl::StatusOr<data::Batch> batch = loader.Next();
  if (!batch.ok()) {
    throw FatalError("data_unreadable", std::string(batch.status().message()));
  }
  TORCH_CHECK(batch->step == shard_.step && batch->size() > 0, "the loader gave ", batch->size(),
              " samples of step ", batch->step, " for step ", shard_.step);
  return *std::move(batch);
}

/// Forward and backward over the micro-batches; gradients end up summed over the column. Returns
/// this rank's sum of weighted losses.
float StepRunner::ForwardBackward(const data::Batch& batch) {
  for (model::Parameter& parameter : shard_.model.parameters()) {
    parameter.value.mutable_grad().reset();
  }
  const model::VitShape& shape = plan_.shape;
  const at::Tensor pixels_bchw =
      at::from_blob(const_cast<float*>(batch.pixels.data()),
                    {batch.size(), shape.channels, shape.image_size, shape.image_size})
          .to(backend_.device());
  double loss_sum = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  for (uint32_t first = 0; first < batch.size(); first += plan_.micro_batch) {
    arrangement_.ThrowIfAborted();
    const uint32_t count = std::min(plan_.micro_batch, batch.size() - first);
    const bool last = first + count == batch.size();
    if (last && reducer_) reducer_->ArmForLastBackward();
    const at::Tensor loss = Loss(batch, pixels_bchw, first, count);
    loss_sum += loss.item<float>();
    forward_seconds += Lap();
    if (last) events_.OnPoint(StepPoint::kForwardDone, shard_.step);
    (loss / batch.global_weight_sum).backward();
    backward_seconds += Lap();
  }
  time_.set_forward_seconds(forward_seconds);
  time_.set_backward_seconds(backward_seconds);
  return static_cast<float>(loss_sum);
}

/// Weighted sum of the samples' losses.
at::Tensor StepRunner::Loss(const data::Batch& batch, const at::Tensor& pixels_bchw, uint32_t first,
                            uint32_t count) {
  const at::Tensor labels_b =
      at::from_blob(const_cast<int64_t*>(batch.labels.data() + first), {count}, at::kLong)
          .to(backend_.device());
  const at::Tensor weights_b =
      at::from_blob(const_cast<float*>(batch.weights.data() + first), {count})
          .to(backend_.device());
  const model::DropPathKey key{.seed = plan_.seed,
                               .step = shard_.step,
                               .first_position = static_cast<int64_t>(batch.positions[first])};
  at::Tensor logits_bc;
  {
    const AutocastScope autocast(backend_.device().type(), plan_.bf16);
    logits_bc = shard_.model.Forward(pixels_bchw.narrow(0, first, count), key);
  }
  const at::Tensor loss_b = at::cross_entropy_loss(
      logits_bc.to(at::kFloat), labels_b, /*weight=*/{},
      /*reduction=*/at::Reduction::None, /*ignore_index=*/-100, plan_.label_smoothing);
  return (loss_b * weights_b).sum();
}

/// Ends with phase REDUCED: whatever happens now, this rank can commit once it knows the row's
/// sums.
void StepRunner::ReduceControl(const data::Batch& batch, float loss_sum) {
  const c10::AutoGradMode no_grad(false);
  float weight_sum = 0;
  for (const float weight : batch.weights) weight_sum += weight;
  at::Tensor control = at::zeros({kControlSlots});
  float* slots = control.mutable_data_ptr<float>();
  slots[kLossSum] = loss_sum;
  slots[kWeightSum] = weight_sum;
  slots[kNonFinite] = std::isfinite(loss_sum) ? 0 : 1;
  slots[kYield] = arrangement_.yield_requested() ? 1 : 0;
  if (arrangement_.column()) {
    control = control.to(backend_.device());
    arrangement_.column()->AllReduceSum(control);
    control = control.cpu();
  }
  events_.OnPoint(StepPoint::kControlSummed, shard_.step);
  const auto norm =
      static_cast<float>(optimizer::LocalNormSquared(shard_.model.parameters(), place_.tp));
  const float* sums = control.const_data_ptr<float>();
  shard_.sums.Clear();
  for (int tp = 0; tp < place_.tensor_degree; ++tp) {
    shard_.sums.add_norm_squared_bits(ToBits(tp == place_.tp ? norm : 0));
    shard_.sums.add_norm_known(tp == place_.tp);
  }
  shard_.sums.set_loss_sum_bits(ToBits(sums[kLossSum]));
  shard_.sums.set_weight_sum_bits(ToBits(sums[kWeightSum]));
  shard_.sums.set_nonfinite_bits(ToBits(sums[kNonFinite] + (std::isfinite(norm) ? 0 : 1)));
  shard_.sums.set_yield_bits(ToBits(sums[kYield]));
  time_.set_exposed_reduce_seconds(Lap());
  shard_.reduced_time = time_;
  shard_.reduced_time.set_step_seconds(
      std::chrono::duration<double>(lap_start_ - step_start_).count());
  shard_.phase = v1::REDUCED;
}

/// The sums every rank commits with. Done in every step, clipping or not: nobody may commit before
/// the whole row is reduced.
v1::StepSums StepRunner::ShareOverRow() {
  if (!arrangement_.row()) return shard_.sums;
  const c10::AutoGradMode no_grad(false);
  const int degree = place_.tensor_degree;
  at::Tensor shared = at::zeros({degree + kControlSlots});
  float* slots = shared.mutable_data_ptr<float>();
  slots[place_.tp] = FromBits(shard_.sums.norm_squared_bits(place_.tp));
  // Equal on all ranks of the row, so one of them contributes.
  if (place_.tp == 0) {
    slots[degree + kLossSum] = FromBits(shard_.sums.loss_sum_bits());
    slots[degree + kWeightSum] = FromBits(shard_.sums.weight_sum_bits());
  }
  slots[degree + kNonFinite] = FromBits(shard_.sums.nonfinite_bits());
  // A column may have heard of it in time and another not: together they have.
  slots[degree + kYield] = FromBits(shard_.sums.yield_bits());
  shared = shared.to(backend_.device());
  arrangement_.row()->AllReduceSum(shared);
  shared = shared.cpu();
  const float* sums = shared.const_data_ptr<float>();
  v1::StepSums result;
  for (int tp = 0; tp < degree; ++tp) {
    result.add_norm_squared_bits(ToBits(sums[tp]));
    result.add_norm_known(true);
  }
  result.set_loss_sum_bits(ToBits(sums[degree + kLossSum]));
  result.set_weight_sum_bits(ToBits(sums[degree + kWeightSum]));
  result.set_nonfinite_bits(ToBits(sums[degree + kNonFinite]));
  result.set_yield_bits(ToBits(sums[degree + kYield]));
  return result;
}

/// Seconds since the last call in this step.
double StepRunner::Lap() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - lap_start_).count();
  lap_start_ = now;
  return seconds;
}

}  // namespace tundish::trainer
