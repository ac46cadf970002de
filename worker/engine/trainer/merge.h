#pragma once

#include <optional>

#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// Puts the row's slices together on its tensor rank 0, which gets every parameter whole, on the
/// CPU; the others get nothing. `average`: the moving averages rather than the values. Called by
/// all ranks of the row. Throws when a peer is lost.
std::optional<checkpoint::FullTensors> MergeOverRow(const Place& place, Shard& shard,
                                                    Arrangement& arrangement, bool average = false);

}  // namespace tundish::trainer
