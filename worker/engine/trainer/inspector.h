#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/data/batch_loader.h"
#include "worker/engine/device/backend.h"
#include "worker/engine/observe/memory_watch.h"
#include "worker/engine/observe/operator_watch.h"
#include "worker/engine/observe/precision_watch.h"
#include "worker/engine/observe/trace.h"
#include "worker/engine/trainer/arrangement.h"
#include "worker/engine/trainer/events.h"
#include "worker/engine/trainer/gradient_reducer.h"
#include "worker/engine/trainer/plan.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// Where a trainer writes profiles.
struct TraceFolder {
  std::string artifact_root;
  std::string job_folder;  ///< below the root
};

/// What a rank checks and records of its steps beside training them, for one arrangement: the first
/// step's precision and device, equality of replicas, flat memory, profiles. Changes no result.
/// Training thread only.
class Inspector {
 public:
  /// All outlive the inspector.
  Inspector(const TrainingPlan& plan, const Place& place, Shard& shard, Arrangement& arrangement,
            device::Backend& backend, TrainerEvents& events, TraceFolder folder);

  /// Begins step `step`. Watches its operators for as long as the result lives, if there is
  /// anything to watch for. `reducer` may be null.
  std::unique_ptr<observe::WatchScope> BeginStep(uint32_t step, GradientReducer* reducer);

  /// Between the two lie forward and backward. The second throws FatalError("wrong_precision") or
  /// FatalError("wrong_device") for what it saw.
  void BeginCompute();
  void EndCompute();

  /// Part of a step, for the profile.
  void Phase(std::string_view name, uint32_t step, std::chrono::steady_clock::time_point start,
             std::chrono::steady_clock::time_point end);

  /// After step batch.step was committed and reported. See CheckReplicas for what it throws.
  /// `memory_bytes` without caches that may fill.
  void EndStep(const data::Batch& batch, uint64_t memory_bytes);

 private:
  void WriteTrace(uint32_t step);

  const TrainingPlan& plan_;
  const Place& place_;
  Shard& shard_;
  Arrangement& arrangement_;
  device::Backend& backend_;
  TrainerEvents& events_;
  const TraceFolder folder_;
  std::optional<observe::PrecisionWatch> precision_;  // While the first step is unproven.
  std::shared_ptr<observe::TraceRecorder> trace_;     // While steps are profiled.
  observe::MemoryWatch memory_;
  bool first_step_ = true;  // Of this arrangement.
};

}  // namespace tundish::trainer
