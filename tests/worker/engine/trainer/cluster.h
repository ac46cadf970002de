#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/worker/engine/trainer/memory_store.h"
#include "worker/engine/trainer/trainer.h"

namespace tundish::testing {

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Writes `per_class` 16 x 16 pictures of each of three classes that can be told apart.
void WriteTinyImages(const std::string& folder, int per_class);

/// A resolved spec: a ViT of two blocks and four heads on those pictures, uneven replicas,
/// accumulation, DropPath, class weights and label smoothing; 20 steps.
v1::JobSpec TinySpec(const std::string& images, int tensor, int data);

/// What a rank of a test hears from its trainer.
class Recorder final : public trainer::TrainerEvents {
 public:
  void OnFormed(const v1::Formed& formed) override;
  void OnStepDone(const v1::StepDone& step) override;
  void OnEvaluation(const v1::Evaluation& evaluation) override;
  void OnCheckpoint(uint32_t job_epoch, const v1::CheckpointWritten& checkpoint) override;
  void OnFinished(const v1::Finished& finished) override;
  void OnNotice(const v1::RankNotice& notice) override;
  void OnEvaluationProgress(uint32_t step, uint32_t batches) override;
  void OnPoint(trainer::StepPoint point, uint32_t step) override;

  std::vector<v1::StepDone> steps;
  std::vector<v1::Evaluation> evaluations;
  std::vector<v1::CheckpointWritten> checkpoints;  // Written by another thread until it ends.
  std::vector<v1::Finished> finished;
  std::vector<v1::RankNotice> notices;
  int evaluation_batches = 0;
  std::vector<uint32_t> formed_at;
  std::function<void(trainer::StepPoint, uint32_t)> at_point;
};

/// One rank of a cluster of threads.
struct Rank {
  int dp = 0;
  int tp = 0;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<trainer::Trainer> trainer;
  std::shared_ptr<trainer::Arrangement> arrangement;
  v1::StartPoint start;
  v1::Stopped standing;
  std::string error;  ///< Why Run threw; empty when it finished.
  bool killed = false;
};

/// Thrown from Recorder::at_point by a rank that dies.
struct Killed {};

/// Trains a spec with one thread per rank, over Gloo on loopback.
class Cluster {
 public:
  Cluster(v1::JobSpec spec, std::string artifact_root);

  Rank& rank(int dp, int tp) { return *ranks_.at(static_cast<size_t>(dp * tensor_ + tp)); }
  std::vector<std::unique_ptr<Rank>>& ranks() { return ranks_; }

  /// Makes a new process of a rank: nothing of the old one is left.
  void Replace(Rank& rank);

  /// Runs one job_epoch on all ranks from their `start`. When one fails, all others are aborted, as
  /// by a coordinator; one that throws Killed loses its trainer.
  void Run(uint32_t job_epoch);

  /// Waits, on a rank's thread, until somebody died; then fails as an aborted collective does.
  void HoldUntilDeath();

  /// The last state of a rank, bit for bit.
  static std::vector<float> State(const Rank& rank);

 private:
  v1::Assignment Assign(const Rank& rank) const;
  void RunOne(Rank& rank, const v1::Assignment& assignment);
  void AbortAll();

  v1::JobSpec spec_;
  std::string artifact_root_;
  v1::DataReport report_;
  int tensor_;
  int data_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;
  std::condition_variable died_;
  bool death_ = false;  // Guarded by mutex_.
};

}  // namespace tundish::testing
