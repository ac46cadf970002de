#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "worker/data/batch_loader.h"
#include "worker/data/wait_monitor.h"
#include "worker/engine/device/backend.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/events.h"
#include "worker/engine/trainer/gradient_reducer.h"
#include "worker/engine/trainer/inspector.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// Commits step shard.step with `sums`, the row's: clips, updates parameters and moments, advances
/// step and counters. No collective; the gradients are spent. Equal gradients and sums give equal
/// bits. Where loss or norm is not finite, nothing is updated: by the plan's policy the step is
/// passed over, or FatalError("non_finite_loss") is thrown before anything changed; `first_bad`
/// then says what was found. Requires phase REDUCED. Returns the step's report, with the times
/// until it was reduced.
v1::StepDone Commit(const TrainingPlan& plan, const Place& place, Shard& shard,
                    const v1::StepSums& sums, const std::string& first_bad = {});

/// Runs the steps of one arrangement on this rank. See docs/recovery.md for what may be lost where.
class StepRunner {
 public:
  /// All outlive the runner. The arrangement is formed and the shard's slot bound to its row.
  StepRunner(const TrainingPlan& plan, const Place& place, Shard& shard, Arrangement& arrangement,
             device::Backend& backend, TrainerEvents& events, TraceFolder trace_folder = {});

  /// Step shard.step, whole. Throws when a collective fails or the arrangement is stopped: the
  /// shard then says how far it came. FatalError: unreadable data, a non-finite loss.
  void Run(data::BatchLoader& loader);

  /// All ranks agreed to stop after the last step that Run ended. The same on every rank.
  bool yield_agreed() const { return yield_agreed_; }

 private:
  data::Batch Fetch(data::BatchLoader& loader);
  float ForwardBackward(const data::Batch& batch, bool reduce);
  std::string FindFirstBad(const data::Batch& batch);
  at::Tensor Loss(const data::Batch& batch, const at::Tensor& pixels, uint32_t first,
                  uint32_t count);
  void ReduceControl(const data::Batch& batch, float loss_sum);
  v1::StepSums ShareOverRow();
  double Lap(const char* phase);

  const TrainingPlan& plan_;
  const Place& place_;
  Shard& shard_;
  Arrangement& arrangement_;
  device::Backend& backend_;
  TrainerEvents& events_;
  std::unique_ptr<GradientReducer> reducer_;  // Null for one replica.
  Inspector inspector_;
  bool yield_agreed_ = false;
  data::WaitMonitor wait_monitor_;
  v1::RankStepTime time_;
  std::chrono::steady_clock::time_point step_start_;
  std::chrono::steady_clock::time_point lap_start_;
};

}  // namespace tundish::trainer
