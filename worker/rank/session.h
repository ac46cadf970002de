#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "tundish/v1/rank.pb.h"
#include "worker/engine/device/epoch_store.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/events.h"
#include "worker/engine/trainer/trainer.h"

namespace tundish::rank {

/// Turns orders into training and training into reports. The training thread is in Run; orders come
/// from another thread, which ends whatever the training thread is waiting for.
class Session final : private trainer::TrainerEvents {
 public:
  /// How a session reaches the outside. `report` may be called from any thread and must not block;
  /// `make_store` from the training thread.
  struct Outside {
    std::function<void(v1::RankReport)> report;
    std::function<c10::intrusive_ptr<device::EpochStore>(uint32_t job_epoch)> make_store;
  };

  explicit Session(Outside outside);

  /// Any thread. Does not block. Orders of a job_epoch that is over are ignored.
  void OnOrder(const v1::RankOrder& order);

  /// Reports Ready (a spare: once it has become a worker), then works through orders until Exit. On
  /// the training thread, once.
  void Run(const v1::Ready& ready, bool spare = false);

  /// Coordinates for log lines; -1 before the first assignment. Any thread.
  int dp() const { return dp_; }
  int tp() const { return tp_; }
  uint32_t job_epoch() const { return job_epoch_; }

 private:
  bool NextOrder(v1::RankOrder& order);
  void Obey(const v1::RankOrder& order, const v1::Ready& ready);
  void Assign(const v1::RankOrder& order);
  void Stop(const v1::RankOrder& order);
  void Save(const v1::RankOrder& order);
  void Work(const v1::Assignment& assignment, trainer::Arrangement& arrangement);
  bool Enter(const v1::RankOrder& order, const std::shared_ptr<trainer::Arrangement>& arrangement);
  void Leave();
  bool IsStopped(uint32_t job_epoch);
  void ReportStopped(uint32_t job_epoch, const std::string& cause,
                     const v1::Stopped& more = v1::Stopped());
  void Send(v1::RankReport report);

  v1::RankReport HowFar();

  void OnPhase(v1::RankPhase phase) override;
  void OnPoint(trainer::StepPoint point, uint32_t step) override;
  void OnFormed(const v1::Formed& formed) override;
  void OnStepDone(const v1::StepDone& step) override;
  void OnEvaluation(const v1::Evaluation& evaluation) override;
  void OnCheckpoint(uint32_t job_epoch, const v1::CheckpointWritten& checkpoint) override;
  void OnFinished(const v1::Finished& finished) override;

  const Outside outside_;
  trainer::Trainer trainer_;
  bool given_up_ = false;  // Training thread: RankFailed was reported.
  std::atomic<int> dp_{-1};
  std::atomic<int> tp_{-1};
  std::atomic<uint32_t> job_epoch_{0};
  std::atomic<v1::RankPhase> phase_{v1::PHASE_IDLE};
  std::atomic<uint64_t> points_{0};  ///< Points of steps passed since the groups formed.

  std::mutex mutex_;
  std::condition_variable ordered_;
  // Guarded by mutex_.
  std::deque<v1::RankOrder> orders_;
  std::shared_ptr<trainer::Arrangement> arrangement_;
  uint32_t assigned_epoch_ = 0;  ///< Highest job_epoch of an Assign that was accepted.
  uint32_t stopped_epoch_ = 0;   ///< Highest job_epoch of a Stop.
  uint32_t yield_epoch_ = 0;     ///< job_epoch of the last Yield.
  bool exit_ = false;
};

}  // namespace tundish::rank
