#pragma once

#include <cstdint>
#include <optional>

#include "tundish/v1/rank.pb.h"
#include "worker/engine/model/vit.h"
#include "worker/engine/parallel/group.h"
#include "worker/engine/trainer/plan.h"

namespace tundish::trainer {

/// Everything a rank carries from one arrangement to the next. One thread uses it.
struct Shard {
  Shard(const TrainingPlan& plan, const Place& place, at::Device device)
      : slot(place.tp, place.tensor_degree), model(plan.shape, slot, device, plan.model_options) {}

  parallel::GroupSlot slot;  // Before the model, which refers to it.
  model::Vit model;

  /// False while the weights are not those of any step.
  bool has_state = false;
  /// Steps committed: the step in progress.
  uint32_t step = 0;
  /// REDUCED: the parameters' gradients are the column's sums of step `step`, and `sums` holds the
  /// column's control sums and this rank's own norm slot.
  v1::StepPhase phase = v1::COMPUTING;
  v1::StepSums sums;
  /// REDUCED: what was measured of step `step` until then.
  v1::RankStepTime reduced_time;
  /// AdamW updates the moments have seen.
  int64_t updates = 0;
  /// A step of this process has passed the first step's watch.
  bool proven = false;
  /// What step - 1 was committed with.
  std::optional<v1::StepSums> committed_sums;
};

}  // namespace tundish::trainer
