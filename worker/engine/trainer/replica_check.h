#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/batch_loader.h"
#include "worker/engine/device/backend.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// Which samples a rank trained on in a step, in one number: every (position, sample) counts, their
/// order does not. Pure.
uint64_t SampleDigest(const std::vector<uint64_t>& positions, const std::vector<uint32_t>& samples);

/// The indices of `hashes` that differ from what most of them are; of two equal halves the one that
/// holds the first is right. Pure.
std::vector<size_t> OddOnes(const std::vector<int64_t>& hashes);

/// After a committed step, by all ranks of the arrangement alike: the parameters are the same over
/// the column, the replicated ones over the row, and the samples that `batch` held on the ranks
/// cover the step's global batch exactly once. A few bytes are exchanged; only where hashes differ
/// does the column exchange one per parameter. Throws FatalError("replicas_differ") naming rank and
/// parameter, FatalError("samples_differ") naming the rank; anything else when a peer is lost:
/// nothing was changed, so the rank stands at its committed step.
void CheckReplicas(const TrainingPlan& plan, const Place& place, Shard& shard,
                   Arrangement& arrangement, device::Backend& backend, const data::Batch& batch);

}  // namespace tundish::trainer
