#pragma once

#include <cstdint>

namespace tundish::optimizer {

enum class ScheduleKind { kCosine, kLinear, kConstant };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 3e-5;
  int64_t total_steps = 1;
  /// Steps before the peak is reached. May be 0; may not exceed total_steps.
  int64_t warmup_steps = 0;
  /// Learning rate after the last step, as a share of the peak. [0, 1]. Not for kConstant.
  double final_fraction = 0;
};

/// Learning rate of step `step` (0-based): grows linearly from peak / (warmup + 1), is exactly
/// `peak` at step == warmup_steps, then falls towards peak x final_fraction, which step total_steps
/// would have. Pure. Steps beyond total_steps keep the final rate.
double LearningRate(const Schedule& schedule, int64_t step);

/// Decay of the weights' moving average at its update after `updates` others: short at first, so
/// that the start is forgotten, `decay` in the end.
double AverageDecay(double decay, int64_t updates);

}  // namespace tundish::optimizer
