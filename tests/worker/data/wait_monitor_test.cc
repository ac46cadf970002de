#include "worker/data/wait_monitor.h"

#include <gtest/gtest.h>

namespace tundish::data {
namespace {

using std::chrono::milliseconds;

/// Runs `steps` steps of one second, each of which waits `wait` seconds while one thread spends the
/// given milliseconds in its stages.
std::optional<v1::DataWait> RunSteps(WaitMonitor& monitor, LoaderStats& stats, int steps,
                                     double wait, int read, int decode, int transform) {
  std::optional<v1::DataWait> last;
  for (int i = 0; i < steps; ++i) {
    stats.threads = 1;
    stats.stages.read += milliseconds(read);
    stats.stages.decode += milliseconds(decode);
    stats.stages.transform += milliseconds(transform);
    if (auto found = monitor.OnStep(wait, 1, stats); found.has_value()) last = found;
  }
  return last;
}

TEST(WaitMonitorTest, NamesTheStageThatTakesLongest) {
  struct Case {
    double wait;
    int read, decode, transform;
    const char* want;
  };
  for (const Case& c : {Case{0.02, 700, 200, 50, "reading"},
                        {0.02, 100, 700, 200, "decoding"},
                        {0.5, 100, 200, 600, "augmenting"},
                        {0.02, 20, 200, 50, "bursts"},
                        {0.009, 100, 700, 200, nullptr}}) {
    WaitMonitor monitor;
    LoaderStats stats;
    const auto wait = RunSteps(monitor, stats, 23, c.wait, c.read, c.decode, c.transform);
    ASSERT_EQ(wait.has_value(), c.want != nullptr) << c.wait;
    if (c.want == nullptr) continue;
    EXPECT_EQ(wait->bottleneck(), c.want);
    EXPECT_NEAR(wait->share(), c.wait, 1e-9);
    EXPECT_EQ(wait->steps(), WaitMonitor::kSteps);
    EXPECT_EQ(wait->threads(), 1U);
  }
}

TEST(WaitMonitorTest, TheFirstStepsFillThePipeline) {
  WaitMonitor monitor;
  LoaderStats stats;
  EXPECT_FALSE(RunSteps(monitor, stats, WaitMonitor::kSkip, 1, 0, 900, 0).has_value());
  EXPECT_FALSE(RunSteps(monitor, stats, 100, 0, 0, 900, 0).has_value());
}

TEST(WaitMonitorTest, RepeatsItselfSeldomButSaysWhatIsNew) {
  WaitMonitor monitor;
  LoaderStats stats;
  EXPECT_TRUE(RunSteps(monitor, stats, 23, 0.1, 0, 900, 0).has_value());
  EXPECT_FALSE(RunSteps(monitor, stats, 500, 0.1, 0, 900, 0).has_value());
  EXPECT_TRUE(RunSteps(monitor, stats, 200, 0.1, 0, 900, 0).has_value());
  EXPECT_TRUE(RunSteps(monitor, stats, 20, 0.1, 900, 0, 0).has_value());
}

}  // namespace
}  // namespace tundish::data
