#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/engine/checkpoint/writer.h"
#include "worker/engine/device/backend.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/events.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"
#include "worker/engine/trainer/step.h"

namespace tundish::trainer {

/// Trains one rank's shard of one job, through any number of arrangements. One thread uses it; the
/// arrangement it works in may be aborted by any other.
class Trainer {
 public:
  /// `events` outlives the trainer.
  explicit Trainer(TrainerEvents& events);
  ~Trainer();

  /// Comes to the assignment's start point, forms the groups, reports Formed, trains, evaluates and
  /// writes the model; returns when this rank has done everything and reported Finished. The groups
  /// stay up. Throws FatalError when no rank could go on, anything else when the arrangement broke:
  /// call Quiesce then. Requires a quiesced trainer.
  void Run(const v1::Assignment& assignment, Arrangement& arrangement);

  /// Leaves the arrangement: aborts it, drops all that uses its groups, then the groups. Weights,
  /// moments and reduced gradients stay. Any number of times.
  void Quiesce(Arrangement& arrangement) noexcept;

  /// Where the rank stands, for the cut. Call after Quiesce.
  v1::Stopped Standing() const;

  /// Null before the first assignment. For tests.
  const Shard* shard() const { return shard_.get(); }

 private:
  void Prepare(const v1::Assignment& assignment);
  void OpenData(const v1::Assignment& assignment);
  void ComeToStart(const v1::Assignment& assignment);
  void CommitForward(const v1::StepSums& sums);
  void Restart(const v1::Assignment& assignment);
  void CopyState(const v1::StartPoint& start, Arrangement& arrangement);
  void Train(const v1::Assignment& assignment, Arrangement& arrangement);
  void EvaluateNow(Arrangement& arrangement);
  void WriteCheckpoint(const v1::Assignment& assignment, uint32_t job_epoch);
  void Finish(const v1::Assignment& assignment, Arrangement& arrangement);

  TrainerEvents& events_;
  TrainingPlan plan_;
  Place place_;
  std::unique_ptr<device::Backend> backend_;
  std::optional<data::Dataset> dataset_;
  std::unique_ptr<data::BatchLoader> training_loader_;
  std::unique_ptr<data::BatchLoader> evaluation_loader_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<StepRunner> runner_;  // Lives as long as the arrangement it works in.
  checkpoint::Writer writer_;
};

}  // namespace tundish::trainer
