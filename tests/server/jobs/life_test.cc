#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/core_harness.h"

namespace tundish::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using LifeTest = CoreHarness;

std::vector<uint32_t> UpTo(uint32_t count) {
  std::vector<uint32_t> steps(count);
  for (uint32_t i = 0; i < count; ++i) steps[i] = i;
  return steps;
}

TEST_F(LifeTest, AJobGoesFromSubmissionToItsModel) {
  fakes::FakeAgent& agent = AddAgent("host-a", 4);
  const std::string id = Submit(Spec(2, 2, 3));
  Settle();
  EXPECT_EQ(Get(id).state(), v1::STARTING);
  EXPECT_EQ(Get(id).job_epoch(), 1u);
  EXPECT_EQ(Get(id).data_report().train_images(), 64u);
  for (const auto& [worker, rank] : agent.ranks()) EXPECT_EQ(rank.start_kind, "fresh");
  agent.Step(id);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::RUNNING);
  EXPECT_DOUBLE_EQ(Get(id).latest().images_per_second(), 64);
  agent.Step(id);
  agent.Step(id);
  Settle();
  EXPECT_EQ(Get(id).step(), 3u);
  agent.Finish(id);
  Settle();
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.reason(), "all_ranks_finished");
  ASSERT_EQ(job.artifacts_size(), 1);
  EXPECT_EQ(agent.Count("exit"), 4);
  EXPECT_TRUE(agent.ranks().empty());
  EXPECT_EQ(core_->ListNodes().nodes(0).devices(0).job_id(), "");
  EXPECT_EQ(Points(id), UpTo(3));
  EXPECT_THAT(Events(id), ElementsAre("PENDING", "data_checked", "PLANNED", "STARTING", "RUNNING",
                                      "artifact", "SUCCEEDED"));
}

TEST_F(LifeTest, SubmissionIsIdempotentAndNamesWhatDiffers) {
  const auto first = core_->Submit("r", Spec(1, 1, 5));
  const auto second = core_->Submit("r", Spec(1, 1, 5));  // before the first is durable
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->job_id(), second->job_id());
  EXPECT_FALSE(first->existing());
  EXPECT_TRUE(second->existing());
  const auto other = core_->Submit("r", Spec(1, 1, 6));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("training.steps"));
  Settle();
  RestartCore();
  EXPECT_EQ(core_->Submit("r", Spec(1, 1, 5))->job_id(), first->job_id());
  EXPECT_EQ(core_->Submit("", Spec(1, 1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->jobs().size(), 1u);
}

TEST_F(LifeTest, ABadDataSetFailsTheJobWithTheAgentsWords) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  agent.manners().data_error = "folder '/images' does not exist; give an existing folder";
  const std::string id = Submit(Spec(1, 1));
  Settle();
  EXPECT_EQ(Get(id).state(), v1::FAILED);
  EXPECT_EQ(Get(id).reason(), "data_check_failed");
  EXPECT_EQ(Get(id).message(), agent.manners().data_error);
  EXPECT_EQ(agent.Count("start"), 0);
}

TEST_F(LifeTest, AnotherAgentChecksTheDataWhenTheFirstOneDies) {
  fakes::FakeAgent& first = AddAgent("host-a", 1);
  first.manners().check_data = false;
  const std::string id = Submit(Spec(1, 1));
  Settle();
  EXPECT_EQ(first.Count("check"), 1);
  EXPECT_THAT(core_->ExplainJob(id)->text(), HasSubstr("host-a is checking"));
  fakes::FakeAgent& second = AddAgent("host-b", 1);
  Settle();
  first.Disconnect();
  Settle();
  EXPECT_EQ(second.Count("check"), 0) << "it may be back soon, and the check goes on";
  Advance(settings_.lost_after + std::chrono::milliseconds(1));
  EXPECT_EQ(second.Count("check"), 1);
  EXPECT_EQ(Get(id).state(), v1::STARTING);
}

TEST_F(LifeTest, ABrokenStreamDoesNotBeginTheDataCheckAgain) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  agent.manners().check_data = false;
  const std::string id = Submit(Spec(1, 1));
  Settle();
  const std::string task = agent.last_task().task_id();
  agent.Disconnect();
  agent.Connect(*core_);
  Settle();
  EXPECT_EQ(agent.last_task().task_id(), task) << "the agent knows it by its id";
  agent.AnswerTask();
  Settle();
  EXPECT_EQ(Get(id).state(), v1::STARTING);
}

TEST_F(LifeTest, ACancelEndsTheDataCheck) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  agent.manners().check_data = false;
  v1::CancelJobRequest cancel;
  cancel.set_job_id(Submit(Spec(1, 1)));
  Settle();
  ASSERT_TRUE(core_->CancelJob(cancel).ok());
  Settle();
  EXPECT_EQ(agent.Count("cancel_task"), 1);
}

TEST_F(LifeTest, TooManyRanksAreRefusedAndWaitingIsExplained) {
  AddAgent("host-a", 4);
  Settle();
  const auto refused = core_->Submit("big", Spec(4, 2));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::AllOf(HasSubstr("8"), HasSubstr("4")));
  const std::string first = Submit(Spec(2, 2), "a");
  Advance(std::chrono::milliseconds(1));  // age decides
  const std::string second = Submit(Spec(2, 2), "b");
  Settle();
  EXPECT_EQ(Get(first).state(), v1::STARTING);
  EXPECT_EQ(Get(second).state(), v1::PENDING);
  EXPECT_EQ(Get(second).reason(), "devices_busy");
  EXPECT_THAT(core_->ExplainJob(second)->text(), HasSubstr("4"));
  EXPECT_THAT(core_->ExplainJob(first)->text(), HasSubstr("host-a"));
  v1::CancelJobRequest cancel;
  cancel.set_job_id(first);
  ASSERT_TRUE(core_->CancelJob(cancel).ok());
  Settle();
  EXPECT_EQ(Get(second).state(), v1::STARTING) << "returned devices reach the waiting job";
}

TEST_F(LifeTest, CancellingEndsAJobInEveryState) {
  for (const char* when : {"unchecked", "starting", "forming", "running", "recovering"}) {
    SCOPED_TRACE(when);
    const std::string state = when;
    fakes::FakeAgent& live = AddAgent(state, 2);
    live.manners().check_data = state != "unchecked";
    live.manners().become_ready = state != "starting";
    live.manners().form = state != "forming";
    const std::string id = Submit(Spec(1, 2), when);
    Settle();
    if (state == "running" || state == "recovering") live.Step(id);
    Settle();
    if (state == "recovering") {
      live.manners().answer_stop = false;
      live.Kill(live.WorkerAt(id, 0, 0));
      Settle();
      EXPECT_EQ(Get(id).state(), v1::RECOVERING);
    }
    v1::CancelJobRequest cancel;
    cancel.set_job_id(id);
    cancel.set_reason("a test");
    EXPECT_EQ(core_->CancelJob(cancel)->state(), v1::CANCELLED);
    Settle();
    EXPECT_EQ(core_->CancelJob(cancel)->state(), v1::CANCELLED) << "again";
    EXPECT_TRUE(live.ranks().empty());
    EXPECT_EQ(Stored(id).back().event().state(), v1::CANCELLED);
    live.Disconnect();
    Settle();
  }
}

TEST_F(LifeTest, ChecksOfArtifactsNameWhatThereIs) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 1));
  Settle();
  agent.Step(id);
  agent.Finish(id);
  Settle();
  const std::string model = Get(id).artifacts(0).path();
  EXPECT_TRUE(core_->CheckArtifact(id, model).ok());
  EXPECT_TRUE(core_->CheckArtifact(id, id + "/model/config.json").ok());
  for (const char* wrong : {"", "/etc/passwd", "../x"}) {
    const absl::Status status = core_->CheckArtifact(id, wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(model));
  }
}

TEST_F(LifeTest, CheckpointsArePublishedWholeAndPruned) {
  fakes::FakeAgent& agent = AddAgent("host-a", 2);
  const std::string id = Submit(Spec(2, 1));
  Settle();
  for (uint32_t step : {1u, 2u, 3u}) {
    agent.Step(id);
    for (int tp : {0, 1}) {
      Settle();
      EXPECT_EQ(core_->ListCheckpoints(id)->checkpoints_size(), std::min<int>(step - 1, 2));
      v1::RankReport report;
      report.mutable_checkpoint()->set_step(step);
      report.mutable_checkpoint()->set_path(id + "/checkpoints/" + std::to_string(step));
      report.mutable_checkpoint()->set_bytes(100);
      agent.Report(agent.WorkerAt(id, 0, tp), report);
    }
  }
  Settle();
  const auto list = core_->ListCheckpoints(id);
  ASSERT_EQ(list->checkpoints_size(), 2);
  EXPECT_EQ(list->checkpoints(1).step(), 3u);
  EXPECT_EQ(list->checkpoints(1).bytes(), 200u);
  EXPECT_THAT(removed_, ElementsAre(id + "/checkpoints/1"));
  const std::string folder = list->checkpoints(1).path();
  EXPECT_TRUE(core_->CheckArtifact(id, folder + "/shard-0").ok());
  for (const char* way : {"/../../../OTHER/model/config.json", "/..", "/./x", "//x"}) {
    EXPECT_EQ(core_->CheckArtifact(id, folder + way).code(), absl::StatusCode::kInvalidArgument)
        << way;
  }
}

TEST_F(LifeTest, TextThatIsCutInACharacterDoesNotStopTheNextStart) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  v1::JobSpec spec = Spec(1, 1);
  spec.mutable_recovery()->set_max_failures(1);
  int request = 0;
  std::string euros;
  for (int i = 0; i < 4000; ++i) euros += "\u20ac";  // 3 bytes each
  for (const std::string shift : {"", "x", "xx", "\xff"}) {
    SCOPED_TRACE(shift);
    const std::string id = Submit(spec, fmt::format("r{}", request++));
    Settle();
    v1::RankReport log;
    log.mutable_log()->set_text(shift + euros);
    agent.Report(agent.ranks().begin()->first, log);
    agent.manners().log_tail = euros + shift;
    for (int i = 0; i < 2; ++i) {
      agent.Kill(agent.ranks().begin()->first);
      Settle();
    }
    ASSERT_EQ(Get(id).state(), v1::FAILED);
    RestartCore();  // refuses to start from what it cannot read
    ASSERT_NE(core_, nullptr);
    EXPECT_THAT(Get(id).message(), HasSubstr("\u20ac"));
    EXPECT_EQ(Stored(id).size(), Get(id).last_seq());
    agent.Connect(*core_);
    Settle();
  }
}

TEST_F(LifeTest, AFatalReportFailsTheJobWithItsReason) {
  fakes::FakeAgent& agent = AddAgent("host-a", 2);
  const std::string id = Submit(Spec(1, 2));
  Settle();
  agent.Step(id);
  v1::RankReport report;
  report.mutable_failed()->set_reason("non_finite_loss");
  report.mutable_failed()->set_message("loss is NaN at step 1");
  agent.Report(agent.WorkerAt(id, 1, 0), report);
  Settle();
  EXPECT_EQ(Get(id).state(), v1::FAILED);
  EXPECT_EQ(Get(id).reason(), "non_finite_loss");
  EXPECT_THAT(Get(id).message(), HasSubstr("NaN"));
  EXPECT_TRUE(agent.ranks().empty());
}

TEST_F(LifeTest, ANoticeBecomesAnEventAndItsFileAnArtifact) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1));
  Settle();
  v1::RankReport report;
  report.mutable_notice()->set_type("artifact");
  report.mutable_notice()->set_reason("trace_written");
  report.mutable_notice()->mutable_artifact()->set_kind("trace");
  report.mutable_notice()->mutable_artifact()->set_path("job/traces/e1-dp0-tp0.json");
  for (int i = 0; i < 2; ++i) agent.Report(agent.WorkerAt(id, 0, 0), report);
  v1::RankReport growth;
  growth.mutable_notice()->set_type("memory_growth");
  growth.mutable_notice()->set_message("it may run out");
  agent.Report(agent.WorkerAt(id, 0, 0), growth);
  Settle();
  ASSERT_EQ(Get(id).artifacts_size(), 1);
  EXPECT_EQ(Get(id).artifacts(0).kind(), "trace");
  const std::vector<std::string> events = Events(id);
  EXPECT_EQ(std::ranges::count(events, "artifact"), 1);
  EXPECT_EQ(std::ranges::count(events, "memory_growth"), 1);
}

TEST_F(LifeTest, AnEvaluationThatGoesOnIsNoHang) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  v1::JobSpec spec = Spec(1, 1);
  spec.mutable_recovery()->set_step_deadline_seconds(10);
  const std::string id = Submit(spec);
  Settle();
  agent.Step(id);
  Settle();
  v1::RankReport progress;
  progress.mutable_evaluation_progress()->set_step(1);
  for (int i = 0; i < 4; ++i) {
    Advance(std::chrono::seconds(8));
    agent.Report(agent.WorkerAt(id, 0, 0), progress);
    Settle();
    EXPECT_EQ(Get(id).state(), v1::RUNNING) << i;
  }
  Advance(std::chrono::seconds(11));
  EXPECT_NE(Get(id).state(), v1::RUNNING);
}

}  // namespace
}  // namespace tundish::jobs
