#include "worker/data/wait_monitor.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace tundish::data {
namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::optional<v1::DataWait> WaitMonitor::OnStep(double wait_seconds, double step_seconds,
                                                const LoaderStats& stats) {
  if (skipped_ < kSkip) {
    ++skipped_;
    before_ = stats;
    return std::nullopt;
  }
  ++steps_;
  waited_ += wait_seconds;
  seconds_ += step_seconds;
  since_named_ += step_seconds;
  if (steps_ < kSteps || seconds_ < kSeconds) return std::nullopt;
  std::optional<v1::DataWait> wait = Judge(stats);
  steps_ = 0;
  waited_ = seconds_ = 0;
  before_ = stats;
  return wait;
}

std::optional<v1::DataWait> WaitMonitor::Judge(const LoaderStats& stats) {
  if (waited_ < kShare * seconds_) return std::nullopt;
  const std::array<std::pair<double, const char*>, 3> stages = {{
      {Seconds(stats.stages.read - before_.stages.read), "reading"},
      {Seconds(stats.stages.decode - before_.stages.decode), "decoding"},
      {Seconds(stats.stages.transform - before_.stages.transform), "augmenting"},
  }};
  double busy = 0;
  for (const auto& [seconds, name] : stages) busy += seconds;
  const bool idled = busy < 0.5 * seconds_ * stats.threads;
  const std::string bottleneck = idled ? "bursts" : std::ranges::max_element(stages)->second;
  if (bottleneck == named_ && since_named_ < kRepeatSeconds) return std::nullopt;
  named_ = bottleneck;
  since_named_ = 0;
  v1::DataWait wait;
  wait.set_share(waited_ / seconds_);
  wait.set_bottleneck(bottleneck);
  wait.set_steps(steps_);
  wait.set_threads(static_cast<uint32_t>(stats.threads));
  return wait;
}

}  // namespace tundish::data
