#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RecoveryTest, AKilledRankIsReplacedAndNoStepIsLost) {
  const std::string id = Run(2, 2, 3);
  const std::string victim = agent_->WorkerAt(id, 0, 1);
  agent_->Kill(victim);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  EXPECT_EQ(Get(id).job_epoch(), 2u);
  EXPECT_EQ(agent_->Count("stop"), 3);
  const auto& replacement = agent_->ranks().at(agent_->WorkerAt(id, 0, 1));
  EXPECT_EQ(replacement.start_kind, "receive");
  EXPECT_EQ(replacement.step, 3u);
  EXPECT_EQ(agent_->ranks().at(agent_->WorkerAt(id, 1, 1)).start_kind, "keep");
  now_.steady += milliseconds(250);
  agent_->Step(id);
  Settle();
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::RUNNING);
  ASSERT_EQ(job.incidents_size(), 1);
  const v1::Incident& incident = job.incidents(0);
  EXPECT_TRUE(incident.closed());
  EXPECT_EQ(incident.cause(), "killed_by_signal_9");
  EXPECT_EQ(incident.dp(), 0);
  EXPECT_EQ(incident.tp(), 1);
  EXPECT_EQ(incident.from_job_epoch(), 1u);
  EXPECT_EQ(incident.to_job_epoch(), 2u);
  EXPECT_EQ(incident.cut_step(), 3u);
  EXPECT_EQ(incident.steps_lost(), 0u);
  EXPECT_EQ(incident.restored_from(), "survivor");
  EXPECT_DOUBLE_EQ(incident.total_ms(), 251.5);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
  EXPECT_THAT(Events(id), ElementsAre("PENDING", "data_checked", "PLANNED", "STARTING", "RUNNING",
                                      "rank_lost", "RECOVERING", "cut_decided", "recovered",
                                      "RUNNING", "artifact", "SUCCEEDED"));
}

TEST_F(RecoveryTest, ARankMayDieInEveryStateOfTheJob) {
  for (const std::string when :
       {"starting", "ready", "forming", "running", "stopping", "reforming", "finishing"}) {
    SCOPED_TRACE(when);
    fakes::FakeAgent& agent = AddAgent(when, 2);
    auto& manners = agent.manners();
    manners.become_ready = when != "starting";
    manners.form = when != "forming";
    const std::string id = Submit(Spec(1, 2, 4), when);
    Settle();
    manners.become_ready = manners.form = true;
    if (when == "running" || when == "stopping" || when == "reforming" || when == "finishing") {
      agent.Step(id);
      Settle();
    }
    if (when == "finishing") {
      for (int i = 0; i < 3; ++i) agent.Step(id);
      v1::RankReport report;
      report.mutable_finished();
      agent.Report(agent.WorkerAt(id, 1, 0), report);
      Settle();
    }
    if (when == "stopping") {  // the survivor has not answered when the second death comes
      manners.answer_stop = false;
      agent.Kill(agent.WorkerAt(id, 0, 0));
      Settle();
      manners.answer_stop = true;
    }
    if (when == "reforming") {
      manners.form = false;
      agent.Kill(agent.WorkerAt(id, 0, 0));
      Settle();
      EXPECT_EQ(Get(id).job_epoch(), 2u);
      manners.form = true;
    }
    const std::string victim =
        when == "stopping" ? agent.WorkerAt(id, 1, 0) : agent.ranks().begin()->first;
    agent.Kill(victim);
    Settle();
    for (const auto& [worker, rank] : agent.ranks()) {
      if (when == "starting" && rank.number == 0) {  // the one that had not come up yet
        v1::RankReport ready;
        ready.mutable_ready();
        agent.Report(worker, ready);
      }
    }
    Settle();
    RunToTheEnd(id);
    // Two deaths at DP 2 take every copy along.
    if (when == "stopping") {
      EXPECT_THAT(Points(id), ElementsAre(0, 0, 1, 2, 3));
    } else {
      EXPECT_EQ(Points(id), UpTo(4));
    }
    EXPECT_GE(Get(id).incidents_size(), 1);
    agent.Disconnect();
    Settle();
  }
}

TEST_F(RecoveryTest, SurvivorsThatAreReducedCommitTheStep) {
  const std::string id = Run(1, 2, 2);
  agent_->StepOne(agent_->WorkerAt(id, 0, 0));  // dp 0 is at 3, dp 1 at 2
  Settle();
  EXPECT_EQ(Points(id), UpTo(2)) << "a point waits for every rank";
  agent_->Kill(agent_->WorkerAt(id, 1, 0));
  Settle();
  EXPECT_EQ(Points(id), UpTo(3)) << "the cut covers it";
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(RecoveryTest, WithoutSurvivorsTheStreamSaysHowFarItWentBack) {
  const std::string id = Run(1, 1, 3);
  v1::RankReport report;
  report.mutable_checkpoint()->set_step(2);
  report.mutable_checkpoint()->set_path(id + "/checkpoints/2");
  agent_->Report(agent_->WorkerAt(id, 0, 0), report);
  Settle();
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  EXPECT_EQ(agent_->ranks().begin()->second.start_kind, "checkpoint");
  RunToTheEnd(id);
  EXPECT_THAT(Points(id), ElementsAre(0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(Events(id), Contains("rewound"));
  EXPECT_EQ(Get(id).incidents(0).steps_lost(), 1u);
  EXPECT_EQ(Get(id).incidents(0).restored_from(), "checkpoint");
}

TEST_F(RecoveryTest, ACollectiveThatFailsGetsItsCauseWhenTheDeathIsKnown) {
  const std::string id = Run(1, 2, 1);
  const std::string survivor = agent_->WorkerAt(id, 0, 0);
  v1::RankReport report;
  report.mutable_stopped()->set_step(1);
  report.mutable_stopped()->set_has_state(true);
  report.mutable_stopped()->set_cause("Connection reset by peer");
  agent_->manners().answer_stop = false;
  agent_->Report(survivor, report);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  agent_->Kill(agent_->WorkerAt(id, 1, 0));
  agent_->manners().answer_stop = true;
  Settle();
  RunToTheEnd(id);
  ASSERT_EQ(Get(id).incidents_size(), 1);
  EXPECT_EQ(Get(id).incidents(0).cause(), "killed_by_signal_9");
}

TEST_F(RecoveryTest, ARestartInEveryStateLosesNothing) {
  for (const std::string when :
       {"pending", "starting", "forming", "running", "behind", "recovering", "reforming"}) {
    SCOPED_TRACE(when);
    fakes::FakeAgent& agent = AddAgent(when, 2);
    auto& manners = agent.manners();
    manners.check_data = when != "pending";
    manners.become_ready = when != "starting";
    manners.form = when != "forming";
    const std::string id = Submit(Spec(1, 2, 4), when);
    Settle();
    if (when == "running" || when == "behind" || when == "recovering" || when == "reforming") {
      agent.Step(id);
      Settle();
    }
    if (when == "behind") agent.StepOne(agent.WorkerAt(id, 0, 0));
    if (when == "recovering" || when == "reforming") {
      manners.answer_stop = when != "recovering";
      manners.form = when != "reforming";
      agent.Kill(agent.WorkerAt(id, 0, 0));
    }
    Settle();
    const uint32_t epoch = Get(id).job_epoch();
    const int assignments = agent.Count("assign");
    RestartCore();
    // Training goes on while nobody listens.
    agent.Forget();
    if (when == "running") agent.Step(id);
    if (when == "behind") agent.StepOne(agent.WorkerAt(id, 1, 0));
    manners.check_data = manners.become_ready = manners.form = manners.answer_stop = true;
    agent.Connect(*core_);
    Settle();
    for (auto& [worker, rank] : agent.ranks()) {
      if (when == "starting" && rank.number == 0) {
        v1::RankReport ready;
        ready.mutable_ready();
        agent.Report(worker, ready);
      }
    }
    Settle();
    if (when == "running" || when == "behind") {
      EXPECT_EQ(Get(id).job_epoch(), epoch) << "a running job is not disturbed";
      EXPECT_EQ(agent.Count("assign"), assignments);
      EXPECT_EQ(agent.Count("stop"), 0);
    }
    RunToTheEnd(id);
    EXPECT_EQ(Points(id), UpTo(4));
    agent.Disconnect();
    Settle();
  }
}

TEST_F(RecoveryTest, AnAgentsReturnAdoptsKillsAndMisses) {
  const std::string id = Run(1, 2, 2);
  agent_->Disconnect();
  Settle();
  agent_->ranks()["stranger"].job_id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
  agent_->ranks()["stranger"].devices = {"cpu:1"};
  agent_->ranks().erase(agent_->WorkerAt(id, 0, 0));
  agent_->Connect(*core_);
  Settle();
  EXPECT_FALSE(agent_->ranks().contains("stranger"));
  EXPECT_EQ(Get(id).state(), v1::RUNNING) << "word of how it ended may follow";
  Advance(milliseconds(501));
  EXPECT_EQ(Get(id).job_epoch(), 2u);
  EXPECT_EQ(Get(id).incidents(0).cause(), "gone");
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(RecoveryTest, AnOldAnswerIsNotTakenForWhereARankStandsNow) {
  const std::string id = Run(1, 2, 2);
  agent_->Kill(agent_->WorkerAt(id, 1, 0));
  Settle();
  agent_->Step(id);
  Settle();
  ASSERT_EQ(Get(id).job_epoch(), 2u);
  agent_->manners().answer_stop = false;
  agent_->Kill(agent_->WorkerAt(id, 1, 0));
  Settle();
  agent_->Disconnect();
  agent_->Connect(*core_);
  Settle();
  // Its second answer to the stop of arrangement 1, which it made before it began arrangement 2.
  const std::string survivor = agent_->WorkerAt(id, 0, 0);
  agent_->ranks().at(survivor).job_epoch = 1;
  v1::RankReport report;
  report.mutable_stopped()->set_step(2);
  report.mutable_stopped()->set_has_state(true);
  agent_->Report(survivor, report);
  agent_->ranks().at(survivor).job_epoch = 2;
  Settle();
  EXPECT_EQ(Get(id).job_epoch(), 2u) << "its own answer is still awaited";
  agent_->manners().answer_stop = true;
  agent_->Disconnect();
  agent_->Connect(*core_);
  Settle();
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(RecoveryTest, AnAgentThatIsAwayDisturbsNobody) {
  const std::string id = Run(1, 2, 1);
  agent_->Disconnect();
  Advance(settings_.lost_after * 3);
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_EQ(core_->ListNodes().nodes(0).state(), "unreachable");
  agent_->Step(id);
  agent_->Connect(*core_);
  Settle();
  EXPECT_EQ(Points(id), UpTo(2));
  EXPECT_EQ(Get(id).job_epoch(), 1u);
}

TEST_F(RecoveryTest, ALostHostsRanksMoveToFreeDevices) {
  fakes::FakeAgent& first = AddAgent("host-a", 1);
  fakes::FakeAgent& second = AddAgent("host-b", 2);
  v1::JobSpec spec = Spec(1, 3);
  spec.mutable_recovery()->set_shrink(false);
  const std::string id = Submit(spec);
  Settle();
  first.Step(id);
  second.Step(id);
  Settle();
  first.LoseHost();
  Advance(settings_.lost_after - milliseconds(1));
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  Advance(milliseconds(2));
  EXPECT_EQ(Get(id).state(), v1::RECOVERING) << "its peers do not advance";
  EXPECT_EQ(Get(id).incidents(0).cause(), "host_lost");
  EXPECT_EQ(Get(id).job_epoch(), 1u) << "no device is free";
  AddAgent("host-c", 1);
  Settle();
  EXPECT_EQ(Get(id).job_epoch(), 2u);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(RecoveryTest, ReportsAreHandledOnceAndInOrder) {
  const std::string id = Run(1, 1, 1);
  const std::string worker = agent_->WorkerAt(id, 0, 0);
  EXPECT_TRUE(agent_->ranks().at(worker).unacknowledged.empty());
  v1::RankReport log;
  log.mutable_log()->set_text("hello");
  agent_->Report(worker, log);
  log.set_worker_id(worker);
  log.set_job_id(id);
  log.set_job_epoch(1);
  log.set_number(agent_->ranks().at(worker).number);
  agent_->SendAgain(log);
  log.set_after(log.number() + 1);
  log.set_number(log.number() + 2);  // beyond a gap: asked for again, not handled
  log.mutable_log()->set_text("too early");
  agent_->SendAgain(log);
  Settle();
  int hellos = 0;
  for (const auto& update : Stored(id)) {
    hellos += update.log().text() == "hello";
    EXPECT_NE(update.log().text(), "too early");
  }
  EXPECT_EQ(hellos, 1);
  EXPECT_EQ(agent_->Count("resend"), 1);
  EXPECT_TRUE(agent_->ranks().at(worker).unacknowledged.empty());
}

}  // namespace
}  // namespace tundish::jobs
