#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tundish/v1/rank.pb.h"
#include "worker/engine/model/vit.h"
#include "worker/engine/optimizer/adamw.h"
#include "worker/engine/optimizer/loss.h"
#include "worker/engine/optimizer/schedule.h"

namespace tundish::trainer {

/// What one rank needs of an assignment's resolved spec, in the engine's own types. Equal on all
/// ranks of the job and the same in every job_epoch.
struct TrainingPlan {
  model::VitShape shape;
  model::VitOptions model_options;
  std::string weights_file;  ///< empty: from the seed
  bool fresh_head = false;   ///< the weights file's head is left aside
  uint64_t seed = 0;
  optimizer::AdamWOptions adamw;
  optimizer::Schedule schedule;
  double clip_norm = 0;
  optimizer::LossOptions loss;
  double average_decay = 0;  ///< 0: no average of the weights is kept
  bool use_average = false;  ///< evaluation and export take it
  bool bf16 = false;
  uint32_t global_batch = 1;
  uint32_t micro_batch = 1;
  uint32_t total_steps = 0;
  uint32_t train_images = 1;
  uint32_t evaluate_every_epochs = 0;   ///< 0: at the end only
  uint32_t checkpoint_every_steps = 0;  ///< 0: once per data epoch
  int threads = 1;
  uint32_t check_replicas_every_steps = 0;  ///< 0: after first steps of arrangements only
  bool skip_non_finite = false;             ///< else the job fails
  uint32_t max_skipped_steps = 0;
  uint32_t trace_first = 1;  ///< steps trace_first to trace_last are profiled; none if first > last
  uint32_t trace_last = 0;

  /// Passes over the data that are complete after `steps` steps.
  uint32_t DataEpochsAfter(uint32_t steps) const;
  /// The validation split is evaluated between committing step `steps` - 1 and starting `steps`.
  bool EvaluationDue(uint32_t steps) const;
  /// State is written after `steps` committed steps.
  bool CheckpointDue(uint32_t steps) const;
  /// Step `step` is profiled.
  bool Traced(uint32_t step) const { return step >= trace_first && step <= trace_last; }
};

/// Throws FatalError("wrong_placement") naming the field when the shape cannot be cut as the
/// assignment says.
TrainingPlan MakePlan(const v1::Assignment& assignment);

/// This rank's coordinates and how it meets the others.
struct Place {
  int dp = 0;
  int tp = 0;
  int data_degree = 1;
  int tensor_degree = 1;
  std::string device;  ///< e.g. "cpu:0"
  std::string bind_address;
  std::chrono::milliseconds collective_timeout = std::chrono::seconds(300);
};

/// Throws FatalError("wrong_placement") when the member list does not fit the degrees.
Place MakePlace(const v1::Assignment& assignment);

}  // namespace tundish::trainer
