#pragma once

#include <cstdint>
#include <optional>

#include "tundish/v1/rank.pb.h"
#include "worker/data/batch_loader.h"

namespace tundish::data {

/// Watches how long training waits for data and says what holds the data up. Pure but for its own
/// counts; one thread.
///
/// A window is at least kSteps steps and kSeconds long; the first kSkip steps fill the pipeline and
/// do not count. When training waited for kShare or more of a window, a warning names the stage the
/// decode threads spent most time in: "reading" (disk, network), "decoding", "augmenting"; or
/// "bursts" when they were busy for less than half the time, so that they were idle at times and
/// too late at others. The same bottleneck is named again only after kRepeatSeconds.
class WaitMonitor {
 public:
  static constexpr uint32_t kSkip = 3;
  static constexpr uint32_t kSteps = 20;
  static constexpr double kSeconds = 5;
  static constexpr double kShare = 0.01;
  static constexpr double kRepeatSeconds = 600;

  /// After each step: its wait for data, its whole time, and the loader's counts now.
  std::optional<v1::DataWait> OnStep(double wait_seconds, double step_seconds,
                                     const LoaderStats& stats);

 private:
  std::optional<v1::DataWait> Judge(const LoaderStats& stats);

  uint32_t skipped_ = 0;
  uint32_t steps_ = 0;
  double waited_ = 0;
  double seconds_ = 0;
  /// At the window's start.
  LoaderStats before_;
  std::string named_;
  double since_named_ = 0;
};

}  // namespace tundish::data
