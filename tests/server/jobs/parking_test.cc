#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

class ParkingTest : public RecoveryTest {
 protected:
  void Yield(const std::string& id, YieldReason reason = YieldReason::kPreempted) {
    const absl::Status asked = core_->YieldJob(id, reason, "for a more important job");
    EXPECT_TRUE(asked.ok()) << asked;
    Settle();
  }

  /// The job, parked at `step`, goes on from there and ends with every point once.
  void ExpectGoesOn(const std::string& id, uint32_t step, int total = 10) {
    EXPECT_EQ(core_->ListCheckpoints(id)->checkpoints(0).step(), step);
    Settle();
    RunToTheEnd(id);
    EXPECT_EQ(Points(id), UpTo(total));
    EXPECT_THAT(Events(id), Not(Contains("rewound")));
    EXPECT_GT(Get(id).job_epoch(), 1u);
  }

  /// Devices are free again, but nothing may start on them: another job shall look at them first.
  std::string HoldDevices() {
    v1::JobSpec spec = Spec(1, agent_devices_);
    spec.set_priority(10);
    return Submit(spec, "holder");
  }

  int agent_devices_ = 4;
};

TEST_F(ParkingTest, AllStopAfterTheSameStepAndTheStateIsKept) {
  const std::string id = Run(2, 2, 3);
  Yield(id);
  EXPECT_EQ(Get(id).state(), v1::RUNNING) << "until a step ends";
  EXPECT_EQ(agent_->Count("yield"), 4);
  const std::string next = HoldDevices();
  agent_->Step(id);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::PENDING);
  EXPECT_EQ(Get(id).step(), 4u);
  EXPECT_EQ(agent_->Count("stop"), 0) << "nobody was interrupted";
  EXPECT_EQ(agent_->Count("save"), 2) << "one holder of each tp";
  EXPECT_EQ(agent_->Count("exit"), 4);
  EXPECT_EQ(Get(id).incidents_size(), 0);
  EXPECT_THAT(Events(id), ElementsAre("PENDING", "data_checked", "PLANNED", "STARTING", "RUNNING",
                                      "yield_requested", "checkpoint", "PREEMPTED", "PENDING"));
  EXPECT_THAT(removed_, IsEmpty());
  EXPECT_EQ(Get(next).state(), v1::STARTING);
  RunToTheEnd(next);
  ExpectGoesOn(id, 4);
}

TEST_F(ParkingTest, ACheckpointOfThatVeryStepIsNotWrittenAgain) {
  const std::string id = Run(1, 2, 3);
  Yield(id);
  agent_->StepOne(agent_->WorkerAt(id, 0, 0));
  agent_->StepOne(agent_->WorkerAt(id, 1, 0));
  v1::RankReport report;
  report.mutable_checkpoint()->set_step(4);
  report.mutable_checkpoint()->set_path(id + "/checkpoints/e1-step4");
  agent_->Report(agent_->WorkerAt(id, 0, 0), report);
  agent_->AgreeToStop(id);
  Settle();
  EXPECT_EQ(agent_->Count("save"), 0);
  ExpectGoesOn(id, 4);
}

TEST_F(ParkingTest, BeforeItsFirstStepAJobJustLeaves) {
  agent_ = &AddAgent("host-a", 2);
  agent_->manners().become_ready = false;
  const std::string id = Submit(Spec(1, 2));
  Settle();
  EXPECT_EQ(Get(id).state(), v1::STARTING);
  agent_->manners().become_ready = true;
  Yield(id);
  EXPECT_EQ(agent_->Count("kill"), 2);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ParkingTest, APausedJobIsHeldUntilItIsLetGoOn) {
  const std::string id = Run(1, 2, 2);
  Yield(id, YieldReason::kPaused);
  agent_->Step(id);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::PENDING);
  RestartCore();
  agent_->Connect(*core_);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::PENDING) << "also over a restart";
  EXPECT_TRUE(core_->LetJobGoOn(id).ok());
  ExpectGoesOn(id, 3);
}

TEST_F(ParkingTest, TheLastStepComesFirst) {
  const std::string id = Run(1, 2, 9);
  Yield(id);
  agent_->Step(id);
  Settle();
  RunToTheEnd(id);
  EXPECT_THAT(Events(id), Not(Contains("PREEMPTED")));
}

TEST_F(ParkingTest, WhoCannotWriteKeepsItsDevices) {
  const std::string id = Run(1, 2, 2);
  agent_->manners().can_save = false;
  Yield(id);
  agent_->Step(id);
  Settle();
  EXPECT_THAT(Events(id), Contains("yield_failed"));
  EXPECT_EQ(agent_->Count("exit"), 0);
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_EQ(Get(id).job_epoch(), 3u);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ParkingTest, AnEndedJobHasNothingToGiveBack) {
  const std::string id = Run(1, 1, 2);
  RunToTheEnd(id);
  EXPECT_EQ(core_->YieldJob(id, YieldReason::kDrained, "x").code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ParkingTest, ACancelWhileItLeavesEndsIt) {
  const std::string id = Run(1, 2, 2);
  agent_->manners().exit_when_told = false;
  Yield(id);
  agent_->Step(id);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::PREEMPTED);
  v1::CancelJobRequest request;
  request.set_job_id(id);
  EXPECT_TRUE(core_->CancelJob(request).ok());
  Settle();
  EXPECT_EQ(Get(id).state(), v1::CANCELLED);
  EXPECT_TRUE(agent_->ranks().empty());
  EXPECT_EQ(core_->ListNodes().nodes(0).devices(0).job_id(), "");
}

TEST_F(ParkingTest, ARankMayDieAtEveryPoint) {
  for (const std::string when : {"asked", "stepping", "agreeing", "saving", "leaving"}) {
    SCOPED_TRACE(when);
    agent_ = &AddAgent(when, 4);
    auto& manners = agent_->manners();
    const std::string id = Submit(Spec(2, 2), when);
    Settle();
    for (int i = 0; i < 3; ++i) agent_->Step(id);
    Settle();
    manners.answer_save = when != "saving";
    manners.exit_when_told = when != "leaving";
    uint32_t step = 3;
    if (when == "stepping") {  // dp 0 has committed, dp 1 is reduced
      agent_->StepOne(agent_->WorkerAt(id, 0, 0));
      agent_->StepOne(agent_->WorkerAt(id, 0, 1));
      for (int tp = 0; tp < 2; ++tp) agent_->ranks().at(agent_->WorkerAt(id, 1, tp)).reduced = true;
      step = 4;
    }
    Yield(id);
    if (when == "agreeing") {
      agent_->Step(id);
      step = 4;
    } else if (when == "saving" || when == "leaving") {
      agent_->Step(id);
      Settle();
      step = 4;
    }
    agent_->Kill(agent_->WorkerAt(id, 0, 0));
    manners.answer_save = manners.exit_when_told = true;
    Settle();
    if (when == "saving" || when == "leaving") {  // the one that did not answer is given up on
      Advance(std::chrono::seconds(301));
      Advance(std::chrono::seconds(11));
    }
    ASSERT_EQ(core_->ListCheckpoints(id)->checkpoints_size(), 1) << Get(id).DebugString();
    EXPECT_EQ(agent_->Count("start"), 8) << "placed once more, nobody else";
    ExpectGoesOn(id, step);
    agent_->Disconnect();
    Settle();
  }
}

TEST_F(ParkingTest, TheCoordinatorMayRestartAtEveryPoint) {
  for (const std::string when : {"asked", "agreed", "saving", "saved", "leaving"}) {
    SCOPED_TRACE(when);
    agent_ = &AddAgent(when, 2);
    auto& manners = agent_->manners();
    const std::string id = Submit(Spec(1, 2), when);
    Settle();
    for (int i = 0; i < 3; ++i) agent_->Step(id);
    Settle();
    manners.answer_save = when != "saving";
    manners.exit_when_told = when != "leaving";
    EXPECT_TRUE(core_->YieldJob(id, YieldReason::kPreempted, "x").ok());
    Settle();
    const bool stepped = when != "asked";
    if (stepped) agent_->Step(id);
    if (when == "agreed") {
      RestartCore();  // some of the answers are not durable
    } else {
      Settle();
      RestartCore();
    }
    manners.answer_save = manners.exit_when_told = true;
    agent_->Connect(*core_);
    Settle();
    if (!stepped) agent_->Step(id);
    Settle();
    EXPECT_THAT(Events(id), Contains("PREEMPTED"));
    EXPECT_EQ(Get(id).incidents_size(), 0);
    ExpectGoesOn(id, 4);
    agent_->Disconnect();
    Settle();
  }
}

TEST_F(ParkingTest, AnAgentMayBeAwayAtEveryPoint) {
  for (const std::string when : {"asked", "saving", "leaving"}) {
    SCOPED_TRACE(when);
    agent_ = &AddAgent(when, 2);
    auto& manners = agent_->manners();
    const std::string id = Submit(Spec(1, 2), when);
    Settle();
    for (int i = 0; i < 3; ++i) agent_->Step(id);
    manners.answer_save = when != "saving";
    manners.exit_when_told = when != "leaving";
    if (when == "asked") agent_->Disconnect();
    EXPECT_TRUE(core_->YieldJob(id, YieldReason::kPreempted, "x").ok());
    Settle();
    if (when != "asked") {
      agent_->Step(id);
      Settle();
      agent_->Disconnect();
    }
    Settle();
    manners.answer_save = manners.exit_when_told = true;
    agent_->Connect(*core_);
    Settle();
    if (when == "asked") agent_->Step(id);
    Settle();
    EXPECT_THAT(Events(id), Contains("PREEMPTED"));
    ExpectGoesOn(id, 4);
    agent_->Disconnect();
    Settle();
  }
}

}  // namespace
}  // namespace tundish::jobs
