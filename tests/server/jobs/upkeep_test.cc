// Exactly-once submission, room on the disk, retention: what the core owes its store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/retention.h"
#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using std::chrono::hours;
using testing::HasSubstr;
using UpkeepTest = RecoveryTest;

TEST_F(UpkeepTest, ACrashBetweenDurabilityAndReplyMakesNoSecondJob) {
  AddAgent("host-a", 1);
  Settle();
  const std::string id = Submit(Spec(1, 1));
  store_->Flush();  // durable; no reply has left, since the loop has not run
  RestartCore();
  const auto again = core_->Submit("r1", Spec(1, 1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job_id(), id);
  EXPECT_TRUE(again->existing());
  EXPECT_EQ(core_->jobs().size(), 1u);
}

TEST_F(UpkeepTest, ACrashBeforeDurabilityLeavesAllOrNothing) {
  for (int round = 0; round < 20; ++round) {
    const std::string request = std::to_string(round);
    const std::string id = Submit(Spec(1, 1), request);
    for (int i = 0; i < round % 4; ++i) loop_.poll_one();
    RestartCore();
    const auto again = core_->Submit(request, Spec(1, 1));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->existing(), again->job_id() == id);
    EXPECT_EQ(core_->jobs().size(), round + 1u);
    Settle();
  }
}

TEST_F(UpkeepTest, RacingCallersGetOneJobAndAnotherSpecIsRefusedByField) {
  const auto first = core_->Submit("r", Spec(1, 1));
  const auto second = core_->Submit("r", Spec(1, 1));
  EXPECT_FALSE(first->existing());
  EXPECT_TRUE(second->existing());
  EXPECT_EQ(first->job_id(), second->job_id());
  v1::JobSpec other = Spec(1, 1);
  other.mutable_training()->set_seed(7);
  other.set_priority(2);
  for (int round = 0; round < 2; ++round) {
    const auto refused = core_->Submit("r", other);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("priority is 2, was 0; also training.seed"));
    Settle();
    RestartCore();
  }
  v1::JobSpec tenant = other;
  tenant.set_tenant("other");
  EXPECT_FALSE(core_->Submit("r", tenant)->existing()) << "unique per tenant";
}

TEST_F(UpkeepTest, AnAlmostFullDiskTakesNoNewWorkAndKeepsJobsGoing) {
  const std::string id = Run(1, 2, 2);
  free_bytes_ = settings_.reserve_bytes - 1;
  Advance(std::chrono::seconds(2));
  const auto refused = core_->Submit("r2", Spec(1, 1));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("make room"));
  EXPECT_TRUE(core_->Submit("r1", Spec(1, 2))->existing()) << "what is there is answered";
  agent_->Step(id);
  Settle();
  EXPECT_EQ(Get(id).step(), 3u);
  free_bytes_ = settings_.reserve_bytes;
  Advance(std::chrono::seconds(2));
  EXPECT_TRUE(core_->Submit("r2", Spec(1, 1)).ok());
  RunToTheEnd(id);
}

TEST_F(UpkeepTest, OldPointsAreThinnedAndReadersAreTold) {
  const std::string id = Run(1, 1, 30, 40);
  now_.wall += settings_.thin_metrics_after + hours(1);
  for (int i = 0; i < 5; ++i) agent_->Step(id);
  Settle();
  // Every tick takes a piece, on the store's thread.
  for (int i = 0; i < 1000 && Points(id).size() > 8; ++i) {
    Advance(std::chrono::milliseconds(1));
    store_->Flush();
  }
  EXPECT_THAT(Points(id), testing::ElementsAre(0, 10, 20, 30, 31, 32, 33, 34));
  v1::WatchJobRequest request;
  request.set_job_id(id);
  request.set_replay_only(true);
  auto sink = std::make_shared<TestSink>();
  ASSERT_TRUE(core_->WatchJob(request, sink).ok());
  RunUntil([&] { return sink->ended.has_value(); });
  EXPECT_EQ(sink->ExpectNoGap(), Get(id).last_seq());
  int ranges = 0;
  for (const auto& update : sink->updates) {
    ranges += update.has_dropped() && update.dropped().reason() == "down_sampling";
  }
  EXPECT_EQ(ranges, 3);
}

TEST_F(UpkeepTest, EndedJobsLoseTheirHistoryThenEverything) {
  const std::string id = Run(1, 1, 10);
  RunToTheEnd(id);
  const size_t events = Events(id).size();
  now_.wall += settings_.keep_history + hours(1);
  for (int i = 0; i < 1000 && !Points(id).empty(); ++i) {
    Advance(std::chrono::milliseconds(1));
    store_->Flush();
  }
  EXPECT_TRUE(Points(id).empty());
  EXPECT_EQ(Events(id).size(), events);
  EXPECT_EQ(Get(id).state(), v1::SUCCEEDED);
  now_.wall += settings_.keep_jobs;
  for (int i = 0; i < 1000 && core_->GetJob(id).ok(); ++i) {
    Advance(std::chrono::milliseconds(1));
    store_->Flush();
  }
  EXPECT_EQ(core_->GetJob(id).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Stored(id).empty());
  EXPECT_FALSE(core_->Submit("r1", Spec(1, 1))->existing());
  Settle();
  RestartCore();
  EXPECT_EQ(core_->jobs().size(), 1u);
}

TEST(RetentionTest, AJobThatHasNotEndedIsThinnedAtMost) {
  Settings settings;
  Now now{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
  Retention::Jobs jobs;
  Job& job = *(jobs["J"] = std::make_unique<Job>());
  job.record.set_job_id("J");
  *job.record.mutable_submitted() = ToTimestamp(now.wall - 2 * settings.keep_jobs);
  Retention retention;
  const auto task = retention.Next(jobs, now, settings);
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kind, RetentionTask::Kind::kThin);
  retention.OnPruned(*task, {.through_seq = 9, .done = true});
  EXPECT_FALSE(retention.Next(jobs, now, settings).has_value()) << "nothing more for now";
  now.wall += hours(2);
  const auto later = retention.Next(jobs, now, settings);
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(later->prune.after_seq, 9u) << "it goes on where it was";
}

}  // namespace
}  // namespace tundish::jobs
