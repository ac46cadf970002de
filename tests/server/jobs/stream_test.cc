#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/jobs/core_harness.h"

namespace tundish::jobs {
namespace {

class StreamTest : public CoreHarness {
 protected:
  std::shared_ptr<TestSink> Watch(const std::string& id, uint32_t after = 0,
                                  void (*change)(v1::WatchJobRequest&) = nullptr) {
    v1::WatchJobRequest request;
    request.set_job_id(id);
    request.set_after_seq(after);
    if (change != nullptr) change(request);
    auto sink = std::make_shared<TestSink>();
    const auto reader = core_->WatchJob(request, sink);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return sink;
  }
};

TEST_F(StreamTest, ReplayJoinsLiveWithoutGapOrDuplicate) {
  fakes::FakeAgent& agent = AddAgent("host-a", 2);
  const std::string id = Submit(Spec(1, 2, 8));
  auto first = Watch(id);  // before anything is durable
  Settle();
  std::vector<std::shared_ptr<TestSink>> readers;
  for (int step = 0; step < 8; ++step) {
    agent.Step(id);
    readers.push_back(Watch(id));  // the step is not durable yet
    readers.push_back(Watch(id, 3));
    if (step % 2 == 0) Settle();
  }
  agent.Finish(id);
  Settle();
  RunUntil([&] { return first->ended.has_value(); });
  const uint32_t last = Get(id).last_seq();
  EXPECT_EQ(first->ExpectNoGap(), last);
  for (size_t i = 0; i < readers.size(); ++i) {
    SCOPED_TRACE(i);
    RunUntil([&] { return readers[i]->ended.has_value(); });
    EXPECT_EQ(readers[i]->ExpectNoGap(i % 2 == 0 ? 0 : 3), last);
    EXPECT_TRUE(readers[i]->ended->ok());
  }
  EXPECT_EQ(first->updates.back().event().state(), v1::SUCCEEDED);
  EXPECT_EQ(core_->streams().reader_count(), 0u);
}

TEST_F(StreamTest, AReaderComesBackAfterARestartAndAfterTheEnd) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 4));
  auto reader = Watch(id);
  Settle();
  agent.Step(id);
  Settle();
  RunUntil([&] { return !reader->updates.empty(); });
  const uint32_t seen = reader->ExpectNoGap();
  RestartCore();
  EXPECT_EQ(reader->ended->code(), absl::StatusCode::kUnavailable);
  agent.Connect(*core_);
  auto again = Watch(id, seen);
  for (int i = 0; i < 3; ++i) agent.Step(id);
  agent.Finish(id);
  Settle();
  RunUntil([&] { return again->ended.has_value(); });
  EXPECT_EQ(again->ExpectNoGap(seen), Get(id).last_seq());
  auto late = Watch(id);
  RunUntil([&] { return late->ended.has_value(); });
  EXPECT_EQ(late->ExpectNoGap(), Get(id).last_seq());
  EXPECT_TRUE(late->ended->ok());
  EXPECT_EQ(late->messages, 1) << "one message carries many updates";
}

TEST_F(StreamTest, ReplayOnlyEndsWhereTheStreamStands) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 4));
  Settle();
  agent.Step(id);
  Settle();
  auto reader = Watch(id, 0, [](v1::WatchJobRequest& r) { r.set_replay_only(true); });
  RunUntil([&] { return reader->ended.has_value(); });
  EXPECT_TRUE(reader->ended->ok());
  EXPECT_EQ(reader->ExpectNoGap(), Get(id).last_seq());
}

TEST_F(StreamTest, WhatAFilterLeavesOutIsSaid) {
  fakes::FakeAgent& agent = AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 4));
  auto reader = Watch(id, 0, [](v1::WatchJobRequest& r) { r.set_without_metrics(true); });
  Settle();
  for (int i = 0; i < 4; ++i) agent.Step(id);
  agent.Finish(id);
  Settle();
  RunUntil([&] { return reader->ended.has_value(); });
  EXPECT_EQ(reader->ExpectNoGap(), Get(id).last_seq());
  int ranges = 0;
  for (const auto& update : reader->updates) {
    EXPECT_FALSE(update.has_metric());
    if (!update.has_dropped()) continue;
    ++ranges;
    EXPECT_EQ(update.dropped().reason(), "filter");
  }
  EXPECT_GE(ranges, 1);
}

TEST_F(StreamTest, ASlowReaderLosesMetricsButNoEvent) {
  fakes::FakeAgent& agent = AddAgent("host-a", 2);
  const std::string id = Submit(Spec(1, 2, 20));
  auto reader = Watch(id);
  Settle();
  agent.Step(id);
  Settle();
  RunUntil([&] { return !reader->updates.empty(); });
  Settle();
  reader->queued = settings_.reader_bound_bytes;
  for (int i = 0; i < 5; ++i) {
    agent.Step(id);
    Settle();
  }
  agent.Kill(agent.WorkerAt(id, 0, 0));
  Settle();
  reader->queued = 0;
  for (int i = 0; i < 14; ++i) agent.Step(id);
  agent.Finish(id);
  Settle();
  RunUntil([&] { return reader->ended.has_value(); });
  EXPECT_EQ(reader->ExpectNoGap(), Get(id).last_seq());
  size_t events = 0;
  bool slow = false;
  for (const auto& update : reader->updates) {
    events += update.has_event();
    slow = slow || update.dropped().reason() == "slow_reader";
  }
  EXPECT_TRUE(slow);
  EXPECT_EQ(events, Events(id).size());
}

/// Collects what a reader of every job gets.
class AllSink : public AllUpdatesSink {
 public:
  void Send(v1::WatchAllResponse message) override {
    for (const v1::JobCursor& cursor : message.began()) began[cursor.job_id()] = cursor.seq();
    for (v1::WatchedJob& job : *message.mutable_jobs()) {
      auto& sink = jobs[job.job_id()];
      v1::WatchJobResponse updates;
      updates.mutable_updates()->Swap(job.mutable_updates());
      sink.Send(std::move(updates));
    }
  }
  void End(const absl::Status& status) override { ended = status; }
  size_t queued_bytes() const override { return queued; }

  std::map<std::string, TestSink> jobs;
  std::map<std::string, uint32_t> began;
  size_t queued = 0;
  std::optional<absl::Status> ended;
};

TEST_F(StreamTest, AReaderOfEveryJobMissesNothingAndResumes) {
  fakes::FakeAgent& agent = AddAgent("host-a", 8);
  std::vector<std::string> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(Submit(Spec(1, 1, 4), std::to_string(i)));
  Settle();
  for (const std::string& id : ids) agent.Step(id);
  Settle();
  auto all = std::make_shared<AllSink>();
  const auto reader = core_->WatchAll({}, all);
  ASSERT_TRUE(reader.ok());
  ids.push_back(Submit(Spec(1, 1, 4), "later"));
  Settle();
  const auto caught_up = [&](AllSink& sink) {
    for (const std::string& id : ids) {
      const auto& updates = sink.jobs[id].updates;
      if (updates.empty() || updates.back().seq() < Get(id).last_seq()) return false;
    }
    return true;
  };
  RunUntil([&] { return caught_up(*all); });
  core_->streams().Remove(*reader);
  EXPECT_EQ(core_->streams().reader_count(), 0u);

  v1::WatchAllRequest resume;
  std::map<std::string, uint32_t> seen;
  for (const std::string& id : ids) {
    seen[id] = all->jobs[id].ExpectNoGap();
    v1::JobCursor& cursor = *resume.add_after();
    cursor.set_job_id(id);
    cursor.set_seq(seen[id]);
  }
  for (const std::string& id : ids) {
    for (int i = 0; i < 4; ++i) agent.Step(id);
    agent.Finish(id);
  }
  Settle();
  auto again = std::make_shared<AllSink>();
  ASSERT_TRUE(core_->WatchAll(resume, again).ok());
  RunUntil([&] { return caught_up(*again); });
  for (const std::string& id : ids) {
    EXPECT_EQ(again->jobs[id].ExpectNoGap(seen[id]), Get(id).last_seq());
    EXPECT_EQ(again->jobs[id].updates.back().event().state(), v1::SUCCEEDED);
  }
  EXPECT_FALSE(again->ended) << "other jobs may come";
}

TEST_F(StreamTest, AReaderOfEveryJobMayBeginNow) {
  AddAgent("host-a", 8);
  const std::string old = Submit(Spec(1, 1, 4), "old");
  Settle();
  auto all = std::make_shared<AllSink>();
  v1::WatchAllRequest request;
  request.set_from_now(true);
  request.set_tenant("default");
  ASSERT_TRUE(core_->WatchAll(request, all).ok());
  EXPECT_EQ(all->began[old], Get(old).last_seq());
  v1::JobSpec foreign = Spec(1, 1, 4);
  foreign.set_tenant("other");
  const std::string hidden = Submit(foreign, "foreign");
  const std::string fresh = Submit(Spec(1, 1, 4), "fresh");
  Settle();
  EXPECT_FALSE(all->jobs.contains(old));
  EXPECT_FALSE(all->jobs.contains(hidden));
  EXPECT_EQ(all->jobs[fresh].ExpectNoGap(), Get(fresh).last_seq());
}

TEST_F(StreamTest, FiltersByRankAndInterval) {
  fakes::FakeAgent& agent = AddAgent("host-a", 4);
  const std::string id = Submit(Spec(2, 2, 6));
  auto rank = Watch(id, 0, [](v1::WatchJobRequest& r) { r.add_ranks(3); });
  auto seldom = Watch(id, 0, [](v1::WatchJobRequest& r) { r.set_minimum_interval_ms(2000); });
  Settle();
  for (int i = 0; i < 6; ++i) {
    agent.Step(id);
    for (const auto& [dp, tp] : {std::pair(0, 0), std::pair(1, 1)}) {
      v1::RankReport log;
      log.mutable_log()->set_text("line");
      agent.Report(agent.WorkerAt(id, dp, tp), std::move(log));
    }
    Advance(std::chrono::seconds(1));
  }
  agent.Finish(id);
  Settle();
  RunUntil([&] { return rank->ended.has_value() && seldom->ended.has_value(); });
  EXPECT_EQ(rank->ExpectNoGap(), Get(id).last_seq());
  EXPECT_EQ(seldom->ExpectNoGap(), Get(id).last_seq());
  int points = 0;
  int logs = 0;
  for (const auto& update : rank->updates) {
    if (update.has_metric()) {
      ++points;
      ASSERT_EQ(update.metric().ranks_size(), 1);
      EXPECT_EQ(update.metric().ranks(0).dp(), 1);
      EXPECT_EQ(update.metric().ranks(0).tp(), 1);
    }
    if (update.has_log()) {
      ++logs;
      EXPECT_EQ(update.log().dp(), 1);
    }
  }
  EXPECT_EQ(points, 6);
  EXPECT_EQ(logs, 6);
  points = 0;
  for (const auto& update : seldom->updates) points += update.has_metric();
  EXPECT_EQ(points, 3);
}

TEST_F(StreamTest, AStoppedReaderHoldsNoMoreThanItsBound) {
  fakes::FakeAgent& agent = AddAgent("host-a", 2);
  const std::string id = Submit(Spec(1, 2, 20));
  auto reader = Watch(id);
  Settle();
  agent.Step(id);
  Settle();
  RunUntil([&] { return reader->updates.size() >= 5; });
  reader->queued = settings_.reader_bound_bytes;
  const size_t before = reader->updates.size();
  for (int i = 0; i < 3; ++i) {
    agent.Kill(agent.WorkerAt(id, 0, 0));  // events
    Settle();
  }
  EXPECT_EQ(reader->updates.size(), before) << "what it has not taken bounds what it gets";
  reader->queued = 0;
  core_->streams().Drained(1);
  for (int i = 0; i < 20; ++i) agent.Step(id);
  agent.Finish(id);
  Settle();
  RunUntil([&] { return reader->ended.has_value(); });
  EXPECT_EQ(reader->ExpectNoGap(), Get(id).last_seq());
  size_t events = 0;
  for (const auto& update : reader->updates) events += update.has_event();
  EXPECT_EQ(events, Events(id).size());
}

TEST_F(StreamTest, ExtremeRequestsAreRefusedByName) {
  AddAgent("host-a", 1);
  v1::WatchJobRequest request;
  request.set_job_id(Submit(Spec(1, 1, 4)));
  request.set_minimum_interval_ms(86'400'001);
  EXPECT_THAT(std::string(core_->WatchJob(request, nullptr).status().message()),
              testing::HasSubstr("minimum_interval_ms is 86400001"));
  request.set_minimum_interval_ms(0);
  for (int i = 0; i < 4097; ++i) request.add_ranks(i);
  EXPECT_THAT(std::string(core_->WatchJob(request, nullptr).status().message()),
              testing::HasSubstr("ranks has 4097"));
}

TEST_F(StreamTest, UnknownJobsAndShortPrefixesAreErrors) {
  AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 4));
  EXPECT_TRUE(core_->GetJob(id.substr(0, 20)).ok());
  EXPECT_EQ(core_->GetJob("01J").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->GetJob("ZZZZZZZZ").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tundish::jobs
