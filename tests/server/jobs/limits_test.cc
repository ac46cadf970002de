#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::HasSubstr;

using LimitsTest = RecoveryTest;

TEST_F(LimitsTest, AStepWithoutATimeLeavesTheEstimateAlone) {
  const std::string id = Run(1, 2, 1);
  agent_->manners().step_seconds = 0;
  for (int i = 0; i < 3; ++i) agent_->Step(id);
  Settle();
  EXPECT_EQ(Get(id).latest().step(), 3u);
  EXPECT_DOUBLE_EQ(Get(id).latest().eta_seconds(), 6 * 0.25);
}

TEST_F(LimitsTest, ASilentSurvivorIsKilledThroughItsAgent) {
  const std::string id = Run(1, 2, 1);
  agent_->manners().answer_stop = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  EXPECT_EQ(agent_->Count("kill"), 0);
  Advance(settings_.stop_limit + milliseconds(1));
  EXPECT_EQ(agent_->Count("kill"), 1);
  agent_->manners().answer_stop = true;
  RunToTheEnd(id);
  EXPECT_THAT(Events(id), Contains("rewound")) << "both copies are gone";
}

TEST_F(LimitsTest, ASurvivorInALongStepIsNotKilled) {
  const std::string id = Run(1, 2, 1);
  agent_->manners().step_seconds = 40;
  agent_->Step(id);
  Settle();
  agent_->manners().answer_stop = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  Advance(std::chrono::seconds(119));
  EXPECT_EQ(agent_->Count("kill"), 0);
  v1::RankReport report;
  report.mutable_stopped()->set_step(2);
  report.mutable_stopped()->set_phase(v1::COMPUTING);
  report.mutable_stopped()->set_has_state(true);
  agent_->manners().answer_stop = true;
  agent_->Report(agent_->WorkerAt(id, 1, 0), report);
  Settle();
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(LimitsTest, TheLimitOfAStopEndsAtTheStepDeadline) {
  const std::string id = Run(1, 2, 1);
  agent_->manners().step_seconds = 1e9;
  agent_->Step(id);
  Settle();
  agent_->manners().answer_stop = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  Advance(std::chrono::seconds(299));
  EXPECT_EQ(agent_->Count("kill"), 0);
  Advance(std::chrono::seconds(2));
  EXPECT_EQ(agent_->Count("kill"), 1);
}

TEST_F(LimitsTest, OfHungRanksTheLeastAdvancedIsKilled) {
  const std::string id = Run(1, 2, 1);
  const std::string behind = agent_->WorkerAt(id, 1, 0);
  agent_->StepOne(agent_->WorkerAt(id, 0, 0));
  Settle();
  for (int i = 0; i < 301; ++i) Advance(milliseconds(1000));
  EXPECT_FALSE(agent_->ranks().contains(behind));
  EXPECT_EQ(Get(id).incidents(0).cause(), "step_deadline");
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(LimitsTest, AStoppedRankIsFoundFromTheTimeOfSteps) {
  const std::string id = Run(1, 2, 0);
  agent_->manners().step_seconds = 0.1;
  for (int i = 0; i < 3; ++i) agent_->Step(id);
  Settle();
  const std::string stopped = agent_->WorkerAt(id, 1, 0);
  agent_->ranks().at(stopped).hangs = true;
  for (int i = 0; i < 6; ++i) Advance(milliseconds(100));
  EXPECT_EQ(agent_->Count("probe"), 0);
  for (int i = 0; i < 5; ++i) Advance(milliseconds(100));
  EXPECT_FALSE(agent_->ranks().contains(stopped));
  EXPECT_EQ(Get(id).incidents(0).cause(), "hung");
  EXPECT_EQ(Get(id).incidents(0).dp(), 1);
  EXPECT_NEAR(Get(id).incidents(0).detect_ms(), 1000, 110) << "from the last step on";
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(LimitsTest, ALongEvaluationIsNoHang) {
  const std::string id = Run(1, 2, 3);
  v1::RankReport report;
  report.mutable_progress()->set_phase(v1::PHASE_EVALUATION);
  for (const int dp : {0, 1}) agent_->Report(agent_->WorkerAt(id, dp, 0), report);
  Settle();
  for (int i = 0; i < 120; ++i) Advance(milliseconds(500));
  EXPECT_GT(agent_->Count("probe"), 0) << "they are asked whether they are well";
  EXPECT_EQ(agent_->Count("kill"), 0);
  EXPECT_TRUE(Get(id).incidents().empty());
}

TEST_F(LimitsTest, ABudgetOfFailuresEndsTheJobWithTheFirstCause) {
  agent_ = &AddAgent("host-a", 1);
  v1::JobSpec spec = Spec(1, 1);
  spec.mutable_recovery()->set_max_failures(2);
  const std::string id = Submit(spec);
  Settle();
  for (const int signal : {11, 9, 9}) {
    EXPECT_FALSE(IsTerminal(Get(id).state()));
    agent_->Kill(agent_->ranks().begin()->first, signal);
    Settle();
  }
  EXPECT_EQ(Get(id).state(), v1::FAILED);
  EXPECT_EQ(Get(id).reason(), "rank_killed_by_signal_11");
  EXPECT_THAT(Get(id).message(), HasSubstr("max_failures"));
}

TEST_F(LimitsTest, RanksThatFallTogetherAreOneFailure) {
  agent_ = &AddAgent("host-a", 4);
  v1::JobSpec spec = Spec(1, 4);
  spec.mutable_recovery()->set_max_failures(2);
  const std::string id = Submit(spec);
  Settle();
  agent_->Step(id);
  Settle();
  for (int round = 0; round < 2; ++round) {
    for (int dp = 0; dp < 4; ++dp) agent_->Kill(agent_->WorkerAt(id, dp, 0));
    Settle();
    ASSERT_EQ(Get(id).state(), v1::RECOVERING) << Get(id).message();
  }
  for (int dp = 0; dp < 4; ++dp) agent_->Kill(agent_->WorkerAt(id, dp, 0));
  Settle();
  EXPECT_EQ(Get(id).state(), v1::FAILED) << "a third time, without a step in between";
}

TEST_F(LimitsTest, EveryDeathBeforeAnAssignmentCounts) {
  agent_ = &AddAgent("host-a", 1);
  agent_->manners().become_ready = false;
  v1::JobSpec spec = Spec(1, 1);
  spec.mutable_recovery()->set_max_failures(2);
  const std::string id = Submit(spec);
  Settle();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(IsTerminal(Get(id).state()));
    agent_->Kill(agent_->ranks().begin()->first);
    Settle();
  }
  EXPECT_EQ(Get(id).state(), v1::FAILED);
}

TEST_F(LimitsTest, AProcessOrderedAgainAfterARestartHasALimit) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  agent.manners().become_ready = false;
  const std::string id = Submit(Spec(1, 1));
  Settle();
  agent.ranks().clear();  // as if its StartWorker had never left
  RestartCore();
  agent.Connect(*core_);
  Settle();
  EXPECT_EQ(agent.Count("start"), 2);
  Advance(milliseconds(1000));
  agent.manners().become_ready = true;
  for (int i = 0; i < 60; ++i) Advance(milliseconds(1000));
  EXPECT_EQ(agent.Count("kill"), 1);
  EXPECT_EQ(Get(id).incidents_size(), 1);
  EXPECT_EQ(Get(id).incidents(0).cause(), "start_deadline");
  RunToTheEnd(id);
}

TEST_F(LimitsTest, AMissingRankDoesNotWakeAJobThatHasEnded) {
  for (const std::string end : {"cancelled", "succeeded"}) {
    SCOPED_TRACE(end);
    fakes::FakeAgent& agent = AddAgent(end, 2);
    const std::string id = Submit(Spec(1, 2, 1), end);
    Settle();
    agent.Step(id);
    const std::string gone = agent.WorkerAt(id, 0, 0);
    v1::RankReport finished;
    finished.mutable_finished();
    if (end == "succeeded") agent.Report(gone, finished);
    Settle();
    agent.Disconnect();
    agent.ranks().erase(gone);
    agent.Connect(*core_);
    Settle();
    EXPECT_EQ(Get(id).state(), v1::RUNNING) << "word of how it ended may follow";
    if (end == "succeeded") {
      agent.Report(agent.WorkerAt(id, 1, 0), finished);
    } else {
      v1::CancelJobRequest cancel;
      cancel.set_job_id(id);
      ASSERT_TRUE(core_->CancelJob(cancel).ok());
    }
    Settle();
    const v1::Job ended = Get(id);
    for (int i = 0; i < 3; ++i) Advance(settings_.exit_limit + milliseconds(1));
    EXPECT_EQ(Get(id).state(), ended.state());
    EXPECT_EQ(Get(id).last_seq(), ended.last_seq()) << "nothing follows the last event";
    const v1::ListNodesResponse nodes = core_->ListNodes();
    for (const auto& node : nodes.nodes()) {
      for (const auto& device : node.devices()) EXPECT_EQ(device.job_id(), "");
    }
    agent.Disconnect();
    Settle();
  }
}

TEST_F(LimitsTest, TheOnlyAgentMayBeAwayLongerThanTheStepDeadline) {
  const std::string id = Run(1, 2, 1);
  agent_->StepOne(agent_->WorkerAt(id, 0, 0));  // so that one is the least advanced
  Settle();
  agent_->Disconnect();
  for (int i = 0; i < 400; ++i) Advance(milliseconds(1000));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  agent_->Connect(*core_);
  Settle();
  Advance(milliseconds(1000));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_EQ(agent_->Count("kill"), 0);
  for (int i = 0; i < 301; ++i) Advance(milliseconds(1000));
  EXPECT_EQ(agent_->Count("kill"), 1) << "the limit holds again";
}

}  // namespace
}  // namespace tundish::jobs
