#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/data/batch_loader.h"
#include "worker/engine/observe/non_finite_watch.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// True when loss, gradients and norm of the step are finite. Pure, so that all ranks agree.
bool StepIsFinite(const v1::StepSums& sums, int tensor_degree);

/// Where a value that is not finite was first seen on a rank.
struct FirstBad {
  int64_t ordinal = 0;  ///< Of the operator in the step; -1 for what went into the step.
  std::string what;
};

/// A parameter or the batch's images, when they are not finite before the step begins.
std::optional<FirstBad> BadInput(const Shard& shard, const data::Batch& batch);

/// Called by all ranks: the earliest of what they found, with its rank, as part of a sentence.
/// Throws when a peer is lost.
std::string AgreeOnFirstBad(const Place& place, Arrangement& arrangement, at::Device device,
                            const std::optional<FirstBad>& own);

/// The event of a step that was passed over.
v1::RankNotice SkipNotice(const v1::StepDone& done, const std::string& first_bad);

}  // namespace tundish::trainer
