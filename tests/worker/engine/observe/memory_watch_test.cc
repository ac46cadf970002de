#include "worker/engine/observe/memory_watch.h"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace tundish::observe {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(MemoryWatchTest, TellsALeakFromNoise) {
  struct Case {
    const char* name;
    std::function<uint64_t(uint32_t)> bytes_at;
    std::vector<uint32_t> want_at;  ///< Steps at which a growth is told.
  };
  const Case cases[] = {
      {"flat", [](uint32_t) { return 500 * kMiB; }, {}},
      {"grows by 1 MiB a step", [](uint32_t step) { return (500 + step) * kMiB; }, {249, 449}},
      {"less than 32 MiB in 200 steps",
       [](uint32_t step) { return 500 * kMiB + step * kMiB / 8; },
       {}},
      {"less than 2 %", [](uint32_t step) { return 5000 * kMiB + step * kMiB / 3; }, {}},
      {"a snapshot now and then",
       [](uint32_t step) { return (step % 100 < 10 ? 900 : 500) * kMiB; },
       {}},
      {"one jump, then flat", [](uint32_t step) { return (step < 120 ? 500 : 700) * kMiB; }, {}},
      {"a saw tooth over a rising floor",
       [](uint32_t step) { return (500 + step + (step % 7) * 30) * kMiB; },
       {249, 449}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    MemoryWatch watch;
    std::vector<uint32_t> told;
    for (uint32_t step = 0; step < 500; ++step) {
      const auto growth = watch.Observe(c.bytes_at(step));
      if (!growth.has_value()) continue;
      told.push_back(step);
      EXPECT_GT(growth->to_bytes, growth->from_bytes);
      EXPECT_EQ(growth->steps, 200U);
    }
    EXPECT_EQ(told, c.want_at);
  }
}

}  // namespace
}  // namespace tundish::observe
