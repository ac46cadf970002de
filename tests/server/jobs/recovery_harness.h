#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/server/jobs/core_harness.h"

namespace tundish::jobs {

/// The steps 0 to `count` - 1.
inline std::vector<uint32_t> UpTo(uint32_t count) {
  std::vector<uint32_t> steps(count);
  for (uint32_t i = 0; i < count; ++i) steps[i] = i;
  return steps;
}

/// For tests of what becomes of a job whose ranks are disturbed.
class RecoveryTest : public CoreHarness {
 protected:
  /// A job of `tensor` x `data` ranks on host-a that has committed `steps` steps.
  std::string Run(int tensor, int data, int steps, int total = 10) {
    agent_ = &AddAgent("host-a", tensor * data);
    const std::string id = Submit(Spec(tensor, data, total));
    Settle();
    for (int i = 0; i < steps; ++i) agent_->Step(id);
    Settle();
    return id;
  }

  void RunToTheEnd(const std::string& id) {
    for (int i = 0; i < 40 && !IsTerminal(Get(id).state()); ++i) {
      for (auto& [name, agent] : agents_) {
        if (Get(id).step() < Get(id).total_steps()) {
          agent->Step(id);
        } else {
          agent->Finish(id);
        }
      }
      Settle();
    }
    EXPECT_EQ(Get(id).state(), v1::SUCCEEDED) << Get(id).message();
    const v1::Job job = Get(id);
    EXPECT_EQ(Stored(id).size(), job.last_seq());
  }

  fakes::FakeAgent* agent_ = nullptr;
};

}  // namespace tundish::jobs
