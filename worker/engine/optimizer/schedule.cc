#include "worker/engine/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tundish::optimizer {

double LearningRate(const Schedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps + 1);
  }
  const int64_t falling = std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps);
  const double progress = std::min(
      1.0, static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(falling));
  const double low = schedule.final_fraction;
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return schedule.peak;
    case ScheduleKind::kLinear:
      return schedule.peak * (low + (1 - low) * (1 - progress));
    case ScheduleKind::kCosine:
      return schedule.peak * (low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  return schedule.peak;
}

double AverageDecay(double decay, int64_t updates) {
  return std::min(decay, (1 + static_cast<double>(updates)) / (10 + static_cast<double>(updates)));
}

}  // namespace tundish::optimizer
