#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointsTest : public RecoveryTest {
 protected:
  void Write(const std::string& id, const std::string& worker, uint32_t step,
             const std::string& folder) {
    v1::RankReport report;
    report.mutable_checkpoint()->set_step(step);
    report.mutable_checkpoint()->set_path(id + "/checkpoints/" + folder);
    agent_->Report(worker, report);
  }

  /// The rank cannot read what it was told to start from.
  void FailToRead(const std::string& worker) {
    v1::RankReport report;
    report.mutable_failed()->set_reason("checkpoint_unreadable");
    report.mutable_failed()->set_message("SHA-256 differs");
    agent_->ranks().at(worker).has_state = false;
    agent_->Report(worker, report);
  }

  std::vector<v1::Artifact> List(const std::string& id) {
    const auto list = core_->ListCheckpoints(id);
    return {list->checkpoints().begin(), list->checkpoints().end()};
  }
};

TEST_F(CheckpointsTest, ADamagedOneIsListedAndTheOneBeforeServes) {
  const std::string id = Run(1, 1, 5);
  for (const uint32_t step : {2u, 4u}) {
    Write(id, agent_->WorkerAt(id, 0, 0), step, "e1-step" + std::to_string(step));
  }
  agent_->manners().form = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  const std::string worker = agent_->WorkerAt(id, 0, 0);
  EXPECT_EQ(agent_->ranks().at(worker).step, 4u);
  FailToRead(worker);
  Settle();
  EXPECT_EQ(agent_->WorkerAt(id, 0, 0), worker) << "the process is good";
  EXPECT_EQ(agent_->ranks().at(worker).step, 2u);
  ASSERT_EQ(List(id).size(), 2u);
  EXPECT_EQ(List(id)[0].damage(), "");
  EXPECT_EQ(List(id)[1].damage(), "SHA-256 differs");
  EXPECT_THAT(Events(id), Contains("checkpoint_damaged"));
  EXPECT_THAT(removed_, IsEmpty());

  agent_->ranks().at(worker).has_state = false;  // still reading
  RestartCore();                                 // what is damaged stays so
  agent_->Connect(*core_);
  Settle();
  EXPECT_EQ(agent_->ranks().at(worker).start_kind, "checkpoint");
  EXPECT_EQ(agent_->ranks().at(worker).step, 2u);
  agent_->manners().form = true;
  FailToRead(worker);
  Settle();
  EXPECT_EQ(agent_->ranks().at(worker).start_kind, "fresh") << "none is left";
  RunToTheEnd(id);
  EXPECT_EQ(Get(id).incidents_size(), 1);
  EXPECT_THAT(Points(id), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(CheckpointsTest, OneRankOfManyMayFindTheDamage) {
  const std::string id = Run(2, 2, 3);
  for (int tp = 0; tp < 2; ++tp) Write(id, agent_->WorkerAt(id, 0, tp), 2, "e1-step2");
  agent_->manners().answer_stop = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 1));
  agent_->Kill(agent_->WorkerAt(id, 1, 1));
  agent_->manners().answer_stop = true;
  agent_->manners().form = false;
  Settle();
  ASSERT_EQ(agent_->ranks().at(agent_->WorkerAt(id, 1, 0)).start_kind, "checkpoint");
  agent_->manners().form = true;
  FailToRead(agent_->WorkerAt(id, 0, 1));
  Settle();
  // (1, 1) has read its own part: survivors hold the step, and no older checkpoint is needed.
  EXPECT_EQ(agent_->ranks().at(agent_->WorkerAt(id, 0, 1)).start_kind, "receive");
  EXPECT_EQ(Get(id).state(), v1::RECOVERING);
  RunToTheEnd(id);
  EXPECT_EQ(List(id).size(), 1u);
}

TEST_F(CheckpointsTest, OtherFatalErrorsStillFailTheJob) {
  const std::string id = Run(1, 1, 1);
  v1::RankReport report;
  report.mutable_failed()->set_reason("non_finite_loss");
  agent_->Report(agent_->WorkerAt(id, 0, 0), report);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::FAILED);
  EXPECT_EQ(Get(id).reason(), "non_finite_loss");
}

TEST_F(CheckpointsTest, FoldersNobodyWillUseAreDeleted) {
  const std::string id = Run(2, 1, 4);
  Write(id, agent_->WorkerAt(id, 0, 0), 2, "e1-step2");  // the other shard could not be written
  for (int tp = 0; tp < 2; ++tp) Write(id, agent_->WorkerAt(id, 0, tp), 3, "e1-step3");
  Settle();
  EXPECT_THAT(removed_, ElementsAre(id + "/checkpoints/e1-step2")) << "superseded, incomplete";
  Write(id, agent_->WorkerAt(id, 0, 1), 2, "e1-step2");
  Settle();
  EXPECT_EQ(List(id).size(), 1u) << "late shards of an older step make no checkpoint";
  EXPECT_EQ(removed_.size(), 2u);
  removed_.clear();

  Write(id, agent_->WorkerAt(id, 0, 0), 4, "e1-step4");
  agent_->Kill(agent_->WorkerAt(id, 0, 0));  // DP 1: back to step 3
  Settle();
  EXPECT_THAT(removed_, ElementsAre(id + "/checkpoints/e1-step4")) << "of an abandoned course";
  removed_.clear();
  RunToTheEnd(id);
  ASSERT_EQ(sweeps_.size(), 1u) << "when the last process is gone";
  EXPECT_EQ(sweeps_[0].folder, id + "/checkpoints");
  EXPECT_THAT(sweeps_[0].keep, ElementsAre("e1-step3"));
}

TEST_F(CheckpointsTest, OneOfTheSameStepTakesTheFolderOfTheOtherAway) {
  const std::string id = Run(1, 1, 3);
  Write(id, agent_->WorkerAt(id, 0, 0), 2, "e1-step2");
  agent_->manners().form = false;
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  agent_->manners().form = true;
  FailToRead(agent_->WorkerAt(id, 0, 0));
  Settle();
  for (int i = 0; i < 2; ++i) agent_->Step(id);
  Write(id, agent_->WorkerAt(id, 0, 0), 2, "e3-step2");
  Settle();
  ASSERT_EQ(List(id).size(), 1u);
  EXPECT_EQ(List(id)[0].path(), id + "/checkpoints/e3-step2");
  EXPECT_EQ(List(id)[0].damage(), "");
  EXPECT_THAT(removed_, ElementsAre(id + "/checkpoints/e1-step2"));
}

}  // namespace
}  // namespace tundish::jobs
