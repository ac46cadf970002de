#include "worker/engine/trainer/step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include "worker/engine/optimizer/adamw.h"
#include "worker/engine/optimizer/gradient_norm.h"
#include "worker/engine/optimizer/loss.h"
#include "worker/engine/optimizer/schedule.h"
#include "worker/engine/trainer/autocast.h"
#include "worker/engine/trainer/diagnosis.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/sums.h"

namespace tundish::trainer {
namespace {

// The control vector of a column, and behind the norm slots of a row.
enum ControlSlot { kLossSum, kWeightSum, kNonFinite, kYield, kControlSlots };

}  // namespace

v1::StepDone Commit(const TrainingPlan& plan, const Place& place, Shard& shard,
                    const v1::StepSums& sums, const std::string& first_bad) {
  TORCH_CHECK(shard.phase == v1::REDUCED, "step ", shard.step, " is not reduced");
  const double norm = GlobalNorm(sums, place.tensor_degree);
  const double loss = GlobalLoss(sums);
  const bool finite = StepIsFinite(sums, place.tensor_degree);
  // Every step that was not skipped is an update, so the count needs no memory of its own.
  const int64_t skipped = static_cast<int64_t>(shard.step) - shard.updates;
  if (!finite && (!plan.skip_non_finite || skipped >= plan.max_skipped_steps)) {
    throw FatalError(
        "non_finite_loss",
        fmt::format("step {} has loss {} and gradient norm {}{}{}{}; a lower learning "
                    "rate or clip_norm would help",
                    shard.step, loss, norm, first_bad.empty() ? "" : ": ", first_bad,
                    plan.skip_non_finite ? fmt::format(" ({} steps were skipped already)", skipped)
                                         : std::string()));
  }
  const double learning_rate = optimizer::LearningRate(plan.schedule, shard.step);
  if (finite) {
    optimizer::ApplyAdamW(shard.model.parameters(), plan.adamw, learning_rate, shard.updates,
                          optimizer::ClipCoefficient(norm, plan.clip_norm));
    shard.model.arena().UpdateAverage(optimizer::AverageDecay(plan.average_decay, shard.updates));
  }
  v1::StepDone done;
  done.set_step(shard.step);
  done.set_data_epoch(plan.DataEpochsAfter(shard.step));
  done.set_loss(loss);
  done.set_gradient_norm(norm);
  done.set_learning_rate(learning_rate);
  done.set_skipped(!finite);
  *done.mutable_time() = shard.reduced_time;
  // The place may be another than the one the step was computed in.
  done.mutable_time()->set_dp(place.dp);
  done.mutable_time()->set_tp(place.tp);
  shard.step += 1;
  if (finite) shard.updates += 1;
  shard.phase = v1::COMPUTING;
  shard.committed_sums = sums;
  return done;
}

StepRunner::StepRunner(const TrainingPlan& plan, const Place& place, Shard& shard,
                       Arrangement& arrangement, device::Backend& backend, TrainerEvents& events,
                       TraceFolder trace_folder)
    : plan_(plan),
      place_(place),
      shard_(shard),
      arrangement_(arrangement),
      backend_(backend),
      events_(events),
      inspector_(plan, place, shard, arrangement, backend, events, std::move(trace_folder)) {
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

  std::unique_ptr<observe::WatchScope> watched = inspector_.BeginStep(step, reducer_.get());
  const data::Batch batch = Fetch(loader);
  time_.set_data_wait_seconds(Lap("data wait"));
  events_.OnPoint(StepPoint::kFetched, step);

  inspector_.BeginCompute();
  const float loss_sum = ForwardBackward(batch, /*reduce=*/true);
  inspector_.EndCompute();
  events_.OnPoint(StepPoint::kBackwardDone, step);

  ReduceControl(batch, loss_sum);
  events_.OnPoint(StepPoint::kReduced, step);

  const v1::StepSums sums = ShareOverRow();
  time_.set_exposed_reduce_seconds(time_.exposed_reduce_seconds() + Lap("share over row"));
  events_.OnPoint(StepPoint::kShared, step);

  std::string first_bad;
  if (!StepIsFinite(sums, place_.tensor_degree)) {
    watched.reset();
    first_bad = FindFirstBad(batch);
  }
  v1::StepDone done = Commit(plan_, place_, shard_, sums, first_bad);
  yield_agreed_ = YieldWanted(sums);
  backend_.Synchronize();
  time_.set_commit_seconds(Lap("commit"));
  events_.OnPoint(StepPoint::kCommitted, step);

  time_.set_step_seconds(std::chrono::duration<double>(lap_start_ - step_start_).count());
  *done.mutable_time() = time_;
  const uint64_t memory_bytes = backend_.Memory().used_bytes;
  done.set_memory_bytes(memory_bytes);
  if (std::optional<v1::DataWait> wait =
          wait_monitor_.OnStep(time_.data_wait_seconds(), time_.step_seconds(), loader.stats())) {
    *done.mutable_data_wait() = *std::move(wait);
  }
  events_.OnStepDone(done);
  if (done.skipped() && place_.dp == 0 && place_.tp == 0) {
    events_.OnNotice(SkipNotice(done, first_bad));
  }
  watched.reset();
  const bool on_host = backend_.device().is_cpu();
  inspector_.EndStep(batch,
                     memory_bytes - std::min(memory_bytes, on_host ? loader.cached_bytes() : 0));
}

data::Batch StepRunner::Fetch(data::BatchLoader& loader) {
  arrangement_.ThrowIfAborted();
  absl::StatusOr<data::Batch> batch = loader.Next();
  if (!batch.ok()) {
    arrangement_.ThrowIfAborted();
    throw FatalError("data_unreadable", std::string(batch.status().message()));
  }
  TORCH_CHECK(batch->step == shard_.step && batch->size() > 0, "the loader gave ", batch->size(),
              " samples of step ", batch->step, " for step ", shard_.step);
  return *std::move(batch);
}

/// Forward and backward over the micro-batches; gradients end up summed over the column, or stay
/// this rank's own. Returns this rank's sum of weighted losses.
float StepRunner::ForwardBackward(const data::Batch& batch, bool reduce) {
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
    if (reduce && last && reducer_) reducer_->ArmForLastBackward();
    const at::Tensor loss = Loss(batch, pixels_bchw, first, count);
    loss_sum += loss.item<float>();
    forward_seconds += Lap("forward");
    if (reduce && last) events_.OnPoint(StepPoint::kForwardDone, shard_.step);
    (loss / batch.global_weight_sum).backward();
    backward_seconds += Lap("backward");
  }
  if (!reduce) return static_cast<float>(loss_sum);
  time_.set_forward_seconds(forward_seconds);
  time_.set_backward_seconds(backward_seconds);
  return static_cast<float>(loss_sum);
}

/// Weighted sum of the samples' losses.
at::Tensor StepRunner::Loss(const data::Batch& batch, const at::Tensor& pixels_bchw, uint32_t first,
                            uint32_t count) {
  const auto part = [&]<class T>(const std::vector<T>& all, at::ScalarType type) {
    if (all.empty()) return at::Tensor();
    return at::from_blob(const_cast<T*>(all.data() + first), {count}, type).to(backend_.device());
  };
  const optimizer::Targets targets = {.labels_b = part(batch.labels, at::kLong),
                                      .weights_b = part(batch.weights, at::kFloat),
                                      .partner_labels_b = part(batch.partner_labels, at::kLong),
                                      .partner_weights_b = part(batch.partner_weights, at::kFloat)};
  const model::MaskKey key{.seed = plan_.seed,
                           .step = shard_.step,
                           .first_position = static_cast<int64_t>(batch.positions[first])};
  at::Tensor logits_bc;
  {
    const AutocastScope autocast(backend_.device().type(), plan_.bf16);
    logits_bc = shard_.model.Forward(pixels_bchw.narrow(0, first, count), key);
  }
  return optimizer::WeightedLoss(logits_bc.to(at::kFloat), targets, plan_.loss);
}

/// Ends with phase REDUCED: whatever happens now, this rank can commit once it knows the row's
/// sums.
void StepRunner::ReduceControl(const data::Batch& batch, float loss_sum) {
  const c10::AutoGradMode no_grad(false);
  float weight_sum = 0;
  for (const float weight : batch.weights) weight_sum += weight;
  for (const float weight : batch.partner_weights) weight_sum += weight;
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
  // After the column: a rank is reduced only when its gradients are those of the whole row.
  shard_.model.SumPartialGradients();
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
  time_.set_exposed_reduce_seconds(Lap("control and norm"));
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

/// Where the first value that is not finite came from, on whichever rank. Computes the step again
/// without reducing over the column: every rank knows the same sums, so all come here. The reduced
/// gradients are gone then, and nobody will want them: the step is not applied.
std::string StepRunner::FindFirstBad(const data::Batch& batch) {
  observe::NonFiniteWatch watch;
  std::optional<FirstBad> bad = BadInput(shard_, batch);
  {
    const observe::WatchScope watched({&watch});
    ForwardBackward(batch, /*reduce=*/false);
  }
  if (!bad.has_value() && watch.found().has_value()) {
    bad = FirstBad{.ordinal = watch.found()->ordinal, .what = watch.found()->what};
  }
  Lap("find first bad tensor");
  return AgreeOnFirstBad(place_, arrangement_, backend_.device(), bad);
}

/// Seconds since the last call in this step, which the named phase took.
double StepRunner::Lap(const char* phase) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - lap_start_).count();
  inspector_.Phase(phase, shard_.step, lap_start_, now);
  lap_start_ = now;
  return seconds;
}

}  // namespace tundish::trainer
