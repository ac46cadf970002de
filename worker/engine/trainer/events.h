#pragma once

#include <cstdint>

#include "tundish/v1/job.pb.h"
#include "tundish/v1/rank.pb.h"

namespace tundish::trainer {

/// Where a step is. Each point is reported right after the work it names.
enum class StepPoint {
  kFetched,
  kForwardDone,
  kBackwardDone,   ///< all gradient buckets are summed over the column
  kControlSummed,  ///< the control vector, too; this rank does not count as reduced yet
  kReduced,        ///< phase REDUCED
  kShared,         ///< norm and control vector are known to the row
  kCommitted,
};

/// What the outside hears from a trainer. Called on the training thread, OnCheckpoint on the
/// checkpoint writer's. Must not block on the network.
class TrainerEvents {
 public:
  virtual ~TrainerEvents() = default;

  virtual void OnFormed(const v1::Formed& formed) = 0;
  virtual void OnStepDone(const v1::StepDone& step) = 0;
  virtual void OnEvaluation(const v1::Evaluation& evaluation) = 0;
  /// `job_epoch` is that of the arrangement that wrote it, which may be over.
  virtual void OnCheckpoint(uint32_t job_epoch, const v1::CheckpointWritten& checkpoint) = 0;
  virtual void OnFinished(const v1::Finished& finished) = 0;
  /// What follows is work of another kind.
  virtual void OnPhase(v1::RankPhase phase) {}
  /// Progress inside step `step`; for watching hangs, and for tests that fail a rank at a point by
  /// throwing from here.
  virtual void OnPoint(StepPoint point, uint32_t step) {}
};

}  // namespace tundish::trainer
