#pragma once

#include <atomic>
#include <cstdint>
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

/// How an arrangement ended in good order.
enum class Outcome {
  kFinished,
  /// All ranks agreed to stop after the same step, which was not the last.
  kYielded,
};

/// Trains one rank's shard of one job, through any number of arrangements. One thread uses it; the
/// arrangement it works in may be aborted by any other.
class Trainer {
 public:
  /// `events` outlives the trainer.
  explicit Trainer(TrainerEvents& events);
  ~Trainer();

  /// Before the first assignment: lists the job's data, which Run then need not do again, and runs
  /// a step of a small model of the job's width, so that the libraries have made all they make at
  /// their first use. Nothing of it shows in results. Throws what is wrong with spec or data.
  void WarmUp(const v1::JobSpec& spec, const v1::DataReport& data);

  /// Comes to the assignment's start point, forms the groups, reports Formed, trains, evaluates and
  /// writes the model; returns when this rank has done everything and reported Finished, or when
  /// all agreed to stop. The groups stay up: others may still be in their last collective. Throws
  /// FatalError when no rank could go on, anything else when the arrangement broke:
  /// call Quiesce then. Requires a quiesced trainer.
  Outcome Run(const v1::Assignment& assignment, Arrangement& arrangement);

  /// Leaves the arrangement: aborts it, drops all that uses its groups, then the groups. Weights,
  /// moments and reduced gradients stay. Any number of times.
  void Quiesce(Arrangement& arrangement) noexcept;

  /// Comes to the start point (keep or commit) and writes this rank's shard of a checkpoint,
  /// reported by OnCheckpoint with `job_epoch`. False if it could not be written. Throws FatalError
  /// where the start point is out of reach. Requires a quiesced trainer.
  bool Save(const v1::Save& save, uint32_t job_epoch);

  /// Where the rank stands, for the cut. Call after Quiesce, or after Run.
  v1::Stopped Standing() const;

  /// Null before the first assignment. For tests.
  const Shard* shard() const { return shard_.get(); }

 private:
  void Prepare(const v1::Assignment& assignment);
  void ListData(const v1::JobSpec& spec, const v1::DataReport& data);
  void OpenLoaders(const v1::Assignment& assignment);
  void ComeToStart(const v1::StartPoint& start);
  void CommitForward(const v1::StepSums& sums);
  void Restart(const v1::Assignment& assignment);
  void CopyState(const v1::StartPoint& start, Arrangement& arrangement);
  Outcome Train(const v1::Assignment& assignment, Arrangement& arrangement);
  void EvaluateNow(Arrangement& arrangement);
  void CheckpointNow(const v1::Assignment& assignment, uint32_t job_epoch);
  void WriteCheckpoint(const std::string& artifact_root, const std::string& job_folder,
                       uint32_t job_epoch);
  void Finish(const v1::Assignment& assignment, Arrangement& arrangement);

  TrainerEvents& events_;
  TrainingPlan plan_;
  Place place_;
  std::unique_ptr<device::Backend> backend_;
  std::optional<data::Dataset> dataset_;
  std::string data_key_;  // What dataset_ was listed for.
  std::unique_ptr<data::BatchLoader> training_loader_;
  std::unique_ptr<data::BatchLoader> evaluation_loader_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<StepRunner> runner_;  // Lives as long as the arrangement it works in.
  std::atomic<uint64_t> shards_written_{0};
  checkpoint::Writer writer_;  // Counts in shards_written_.
};

}  // namespace tundish::trainer
