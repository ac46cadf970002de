#pragma once

#include <cstdint>
#include <string>

namespace tundish::scheduler {

/// What a simulated history came to.
struct Outcome {
  std::int64_t events = 0;
  std::int64_t started = 0;
  std::int64_t backfilled = 0;
  std::int64_t preempted = 0;
  std::int64_t evicted = 0;
  std::int64_t expired = 0;
  std::int64_t restarts = 0;
  double longest_wait_seconds = 0;
  /// Devices held, on average, of those on usable nodes.
  double utilisation = 0;
  /// The first invariant that did not hold, with the event; empty: all held.
  std::string broken;
};

/// Random jobs, tenants, nodes that drain, vanish, have windows and come back, runs that end early,
/// late, yield or are cancelled, and a scheduler that is made anew from the truth as after a crash.
/// After every event the scheduler decides, its decision is carried out, and these are checked
/// against a model of the devices of its own: no partial gang, no device twice or lost, only usable
/// nodes, no start into a window, no quota exceeded, order of precedence, the head never delayed by
/// back-fill, no preemption of equals, of young or often preempted runs or in a circle, and no wait
/// beyond a bound.
Outcome Simulate(std::uint64_t seed, std::int64_t events);

}  // namespace tundish::scheduler
