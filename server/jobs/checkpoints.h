#pragma once

#include <cstdint>
#include <string>

#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "tundish/v1/rank.pb.h"

// Which checkpoints a job has, which of them can be used, and which folders may go. Only these
// functions decide that a folder is deleted.
namespace tundish::jobs {

/// True if a report about committed step number `steps` of an arrangement still counts: the
/// arrangement is the one in force, or its cut kept that step.
bool Counts(const Job& job, uint32_t job_epoch, uint32_t steps);

/// A shard is durable. The last one of its folder makes the checkpoint; a shard that can never be
/// part of a checkpoint anybody would use condemns its folder.
void OnShardWritten(Job& job, const Member& member, const v1::RankReport& report, Context& context);

/// The checkpoint to go back to: the newest that no rank failed to read; null if there is none.
const v1::CheckpointRecord* NewestUsable(const Job& job);

/// A rank could not read the checkpoint in `folder`: it stays listed, with `damage`, and is not
/// used again. Says so once.
void MarkDamaged(Job& job, const std::string& folder, const std::string& damage, Context& context);

/// Condemns the folders of checkpoints that were begun after step `cut`, which the cut undid.
void DropBegunAfter(Job& job, uint32_t cut, Context& context);

/// No process of the job writes any more: every folder that no record names may go.
void SweepCheckpoints(Job& job, Context& context);

}  // namespace tundish::jobs
