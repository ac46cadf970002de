#include "tests/server/scheduler/simulation.h"

#include <cstdlib>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace tundish::scheduler {
namespace {

/// `make simulate` sets the number of events to a million.
std::int64_t Events() {
  const char* text = std::getenv("TUNDISH_SIMULATED_EVENTS");
  return text == nullptr ? 50'000 : std::stoll(text);
}

TEST(SimulationTest, InvariantsHoldAtEveryEvent) {
  constexpr int kHistories = 5;
  for (std::uint64_t seed = 1; seed <= kHistories; ++seed) {
    const Outcome outcome = Simulate(seed, Events() / kHistories);
    fmt::print(
        "seed {}: {} events, {} starts of which {} back-filled, {} preempted, {} evicted, {} "
        "expired, {} restarts, longest wait {:.1f} h, {:.0f} % of devices held\n",
        seed, outcome.events, outcome.started, outcome.backfilled, outcome.preempted,
        outcome.evicted, outcome.expired, outcome.restarts, outcome.longest_wait_seconds / 3600,
        100 * outcome.utilisation);
    ASSERT_EQ(outcome.broken, "") << "seed " << seed;
    EXPECT_GT(outcome.backfilled, 0);
    EXPECT_GT(outcome.preempted, 0);
    EXPECT_GT(outcome.evicted, 0);
  }
}

}  // namespace
}  // namespace tundish::scheduler
