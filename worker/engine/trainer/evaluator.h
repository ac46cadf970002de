#pragma once

#include <string>
#include <vector>

#include "worker/data/batch_loader.h"
#include "worker/engine/device/backend.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/events.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// Rates out of counts. `confusion` is row-major [truth][predicted]; `loss_sum` is the sum of the
/// images' unweighted cross-entropies. Classes without images do not count in balanced accuracy.
v1::Evaluation Summarize(const std::vector<std::string>& classes,
                         const std::vector<double>& confusion, double loss_sum);

/// Evaluates the shard's weights on the validation split: every image once, replicas take
/// contiguous parts, counts are summed over the column. Equal on all ranks. Throws when a
/// collective fails or the arrangement is stopped: it then starts again from the first image.
/// FatalError("data_unreadable"). Tells `events` of every batch.
v1::Evaluation Evaluate(const TrainingPlan& plan, const Place& place,
                        const std::vector<std::string>& classes, Shard& shard,
                        Arrangement& arrangement, device::Backend& backend,
                        data::BatchLoader& loader, TrainerEvents& events);

}  // namespace tundish::trainer
