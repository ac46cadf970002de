#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ElasticTest : public RecoveryTest {
 protected:
  /// One host for each entry, with so many devices; a job over all of them that did `steps` steps.
  std::string RunOver(const std::vector<int>& devices, int tensor, int steps = 2,
                      const std::function<void(v1::RecoverySpec&)>& policy = {}) {
    int all = 0;
    for (size_t i = 0; i < devices.size(); ++i) {
      hosts_.push_back(&AddAgent("host-" + std::to_string(hosts_.size()), devices[i]));
      all += devices[i];
    }
    v1::JobSpec spec = Spec(tensor, all / tensor);
    if (policy) policy(*spec.mutable_recovery());
    const std::string id = Submit(spec, "r" + std::to_string(hosts_.size()));
    Settle();
    for (int i = 0; i < steps; ++i) StepAll(id);
    return id;
  }

  void StepAll(const std::string& id) {
    for (auto& [name, agent] : agents_) agent->Step(id);
    Settle();
  }

  void LoseHost(fakes::FakeAgent& host) {
    host.LoseHost();
    Advance(settings_.unreachable_after + milliseconds(1));
    Advance(settings_.lost_after);
  }

  std::string Explain(const std::string& id) { return core_->ExplainJob(id)->text(); }

  std::vector<fakes::FakeAgent*> hosts_;
};

TEST_F(ElasticTest, ReplicasGoOnWithoutALostHostAndTakeANewOneIn) {
  const std::string id = RunOver({1, 1, 1}, 1);
  LoseHost(*hosts_[0]);
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  EXPECT_EQ(Get(id).data(), 2u);
  StepAll(id);
  ASSERT_EQ(Get(id).state(), v1::RUNNING);
  const v1::Incident incident = Get(id).incidents(0);
  EXPECT_EQ(incident.cause(), "host_lost");
  EXPECT_EQ(incident.replacement(), "shrink");
  EXPECT_EQ(incident.data(), 2u);
  EXPECT_EQ(incident.steps_lost(), 0u);
  for (int host : {1, 2}) EXPECT_EQ(hosts_[host]->ranks().begin()->second.data, 2);

  AddAgent("host-new", 1);
  Settle();
  EXPECT_EQ(Get(id).data(), 2u) << "until a step ends";
  EXPECT_EQ(Get(id).job_epoch(), 2u);
  StepAll(id);
  EXPECT_EQ(Get(id).data(), 3u);
  EXPECT_EQ(Get(id).job_epoch(), 3u);
  EXPECT_EQ(Get(id).state(), v1::RUNNING) << "nobody was stopped";
  EXPECT_EQ(hosts_[1]->Count("stop"), 1) << "by the loss, not by the growth";
  EXPECT_EQ(agents_["host-new"]->ranks().begin()->second.start_kind, "receive");
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
  EXPECT_EQ(Get(id).incidents_size(), 1);
  EXPECT_THAT(Events(id), Contains("shrunk"));
  EXPECT_THAT(Events(id), Contains("regrown"));
}

TEST_F(ElasticTest, ARowThatLostOneRankIsLeftOutWhole) {
  const std::string id = RunOver({1, 3}, 2);  // row 0 lies over both hosts
  LoseHost(*hosts_[0]);
  EXPECT_EQ(Get(id).data(), 1u);
  EXPECT_EQ(hosts_[1]->ranks().size(), 2u) << "the other half of row 0 has left";
  EXPECT_EQ(core_->ListNodes().nodes(1).devices(0).job_id().empty() +
                core_->ListNodes().nodes(1).devices(1).job_id().empty() +
                core_->ListNodes().nodes(1).devices(2).job_id().empty(),
            1);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ElasticTest, WithoutLeaveToShrinkItWaitsAndThenGivesItsDevicesBack) {
  const std::string id =
      RunOver({1, 1}, 1, 2, [](v1::RecoverySpec& policy) { policy.set_shrink(false); });
  LoseHost(*hosts_[0]);
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  EXPECT_THAT(Explain(id), HasSubstr("no device for rank dp=0 tp=0"));
  EXPECT_THAT(Explain(id), HasSubstr("1 more on unreachable host-0"));
  EXPECT_THAT(Explain(id), HasSubstr("s more"));
  const std::string other = Submit(Spec(1, 1), "other");
  Settle();
  Advance(seconds(57));  // Two more passed while it was being given up.
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  Advance(seconds(2));
  EXPECT_EQ(Get(id).state(), v1::PENDING);
  EXPECT_THAT(Get(id).message(), Not(HasSubstr("more important")));
  EXPECT_THAT(Events(id), Contains("released"));
  EXPECT_EQ(Get(id).incidents(0).replacement(), "released");
  EXPECT_TRUE(Get(id).incidents(0).closed());
  EXPECT_EQ(Get(other).state(), v1::STARTING) << "nobody starves";
  RunToTheEnd(other);
  AddAgent("host-new", 1);
  Settle();
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ElasticTest, NotBelowTheLeastNumberOfReplicas) {
  const std::string id =
      RunOver({1, 1, 1}, 1, 2, [](v1::RecoverySpec& policy) { policy.set_min_data(2); });
  LoseHost(*hosts_[0]);
  EXPECT_EQ(Get(id).data(), 2u);
  StepAll(id);
  LoseHost(*hosts_[1]);
  EXPECT_EQ(Get(id).state(), v1::RECOVERING) << "one would be too few";
  Advance(seconds(61));
  Advance(seconds(61));
  EXPECT_EQ(Get(id).state(), v1::PENDING);
}

TEST_F(ElasticTest, OneReplicaGoesBackToItsCheckpoint) {
  const std::string id = RunOver({1, 1}, 2);
  LoseHost(*hosts_[0]);
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  Advance(seconds(61));
  Advance(seconds(1));
  EXPECT_EQ(Get(id).state(), v1::PENDING) << "no row is whole";
  AddAgent("host-new", 1);
  Settle();
  RunToTheEnd(id);
  EXPECT_THAT(Points(id), ElementsAre(0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(Events(id), Contains("rewound"));
}

TEST_F(ElasticTest, AJoinerThatFailsDisturbsNobodyAndIsTriedAgainLater) {
  const std::string id = RunOver({1, 1}, 1);
  LoseHost(*hosts_[0]);
  StepAll(id);
  fakes::FakeAgent& fresh = AddAgent("host-new", 1);
  fresh.manners().become_ready = false;
  Settle();
  ASSERT_EQ(fresh.ranks().size(), 1u);
  fresh.Kill(fresh.ranks().begin()->first);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_EQ(Get(id).incidents_size(), 1);
  EXPECT_TRUE(fresh.ranks().empty()) << "not at once";
  fresh.manners().become_ready = true;
  Advance(seconds(11));
  EXPECT_EQ(fresh.ranks().size(), 1u);
  StepAll(id);
  EXPECT_EQ(Get(id).data(), 2u);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ElasticTest, ADeathWhileItGrowsIsARecoveryWithWhoIsThere) {
  for (const std::string when : {"joining", "asked", "agreed", "forming"}) {
    SCOPED_TRACE(when);
    hosts_.clear();
    const std::string base = when;
    fakes::FakeAgent& a = AddAgent(base + "-a", 1);
    fakes::FakeAgent& b = AddAgent(base + "-b", 2);
    const std::string id = Submit(Spec(1, 3), when);
    Settle();
    StepAll(id);
    LoseHost(a);
    StepAll(id);
    ASSERT_EQ(Get(id).data(), 2u);
    fakes::FakeAgent& fresh = AddAgent(base + "-new", 1);
    fresh.manners().become_ready = when != "joining";
    Settle();
    if (when == "agreed") b.StepOne(b.WorkerAt(id, 0, 0));
    if (when == "forming") {
      fresh.manners().form = false;
      StepAll(id);
      fresh.manners().form = true;
    }
    b.Kill(b.WorkerAt(id, 1, 0));
    Settle();
    fresh.manners().become_ready = true;
    for (auto& [worker, rank] : fresh.ranks()) {
      if (rank.number > 0) continue;
      v1::RankReport ready;
      ready.mutable_ready();
      fresh.Report(worker, ready);
    }
    Settle();
    RunToTheEnd(id);
    EXPECT_EQ(Points(id), UpTo(10));
    EXPECT_EQ(Get(id).incidents_size(), 2);
    b.Disconnect();
    fresh.Disconnect();
    Settle();
  }
}

TEST_F(ElasticTest, ARestartOfTheCoordinatorForgetsJoinersOnly) {
  const std::string id = RunOver({1, 1}, 1);
  LoseHost(*hosts_[0]);
  StepAll(id);
  fakes::FakeAgent& fresh = AddAgent("host-new", 1);
  Settle();
  RestartCore();
  for (auto& [name, agent] : agents_) {
    if (name != "host-0") agent->Connect(*core_);
  }
  Settle();
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_EQ(Get(id).data(), 1u);
  Settle();
  StepAll(id);
  StepAll(id);
  EXPECT_EQ(Get(id).data(), 2u);
  EXPECT_EQ(fresh.Count("kill"), 1);
  RunToTheEnd(id);
  EXPECT_EQ(Points(id), UpTo(10));
}

TEST_F(ElasticTest, ItGrowsAfterJobsThatComeFirstAndEndsWithItsJoiners) {
  const std::string id = RunOver({1, 1}, 1);
  LoseHost(*hosts_[0]);
  StepAll(id);
  v1::JobSpec urgent = Spec(1, 2);
  urgent.set_priority(5);
  const std::string first = Submit(urgent, "urgent");
  Settle();
  AddAgent("host-new", 1).manners().become_ready = false;
  Settle();
  EXPECT_TRUE(agents_["host-new"]->ranks().empty()) << "kept for the more important job";
  v1::CancelJobRequest cancel;
  cancel.set_job_id(first);
  EXPECT_TRUE(core_->CancelJob(cancel).ok());
  Settle();
  EXPECT_EQ(agents_["host-new"]->ranks().size(), 1u);
  cancel.set_job_id(id);
  EXPECT_TRUE(core_->CancelJob(cancel).ok());
  Settle();
  EXPECT_TRUE(agents_["host-new"]->ranks().empty());
  EXPECT_EQ(Get(id).state(), v1::CANCELLED);
}

TEST_F(ElasticTest, ExplainSaysWhatADrainedNodeWithholds) {
  const std::string id =
      RunOver({2}, 1, 2, [](v1::RecoverySpec& policy) { policy.set_shrink(false); });
  v1::DrainNodeRequest drain;
  drain.set_node("host-0");
  drain.set_drain(true);
  EXPECT_TRUE(core_->DrainNode(drain).ok());
  hosts_[0]->Kill(hosts_[0]->WorkerAt(id, 1, 0));
  Settle();
  EXPECT_THAT(Explain(id), HasSubstr("no device for rank dp=1 tp=0: of 0 cpu devices none is "
                                     "free; 2 more on drained host-0"));
  drain.set_drain(false);
  EXPECT_TRUE(core_->DrainNode(drain).ok());
  Settle();
  RunToTheEnd(id);
}

TEST_F(ElasticTest, ARankThatFailsAtEveryStartIsSlowedDownAndTheFirstCauseTold) {
  const std::string id =
      RunOver({2}, 1, 2, [](v1::RecoverySpec& policy) { policy.set_max_failures(6); });
  // An incident of long ago that is over.
  hosts_[0]->Kill(hosts_[0]->WorkerAt(id, 1, 0), 15);
  Settle();
  StepAll(id);
  ASSERT_EQ(Get(id).state(), v1::RUNNING);

  hosts_[0]->manners().become_ready = false;
  hosts_[0]->manners().log_tail = "the first trouble";
  hosts_[0]->Kill(hosts_[0]->WorkerAt(id, 1, 0), 11);
  Settle();
  hosts_[0]->manners().log_tail = "cannot load a library";
  int waits = 0;
  for (int i = 0; i < 40 && !IsTerminal(Get(id).state()); ++i) {
    const auto starting = std::ranges::find_if(
        hosts_[0]->ranks(), [](const auto& entry) { return entry.second.number == 0; });
    if (starting == hosts_[0]->ranks().end()) {
      EXPECT_THAT(Explain(id), HasSubstr("starts again in"));
      ++waits;
      Advance(milliseconds(500));
    } else {
      hosts_[0]->Kill(starting->first, 6);
      Settle();
    }
  }
  EXPECT_EQ(Get(id).state(), v1::FAILED);
  EXPECT_EQ(Get(id).reason(), "rank_killed_by_signal_11");
  EXPECT_THAT(Get(id).message(), HasSubstr("the first trouble"));
  EXPECT_GE(waits, 3);
}

}  // namespace
}  // namespace tundish::jobs
