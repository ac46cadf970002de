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

TEST_F(StreamTest, UnknownJobsAndShortPrefixesAreErrors) {
  AddAgent("host-a", 1);
  const std::string id = Submit(Spec(1, 1, 4));
  EXPECT_TRUE(core_->GetJob(id.substr(0, 20)).ok());
  EXPECT_EQ(core_->GetJob("01J").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->GetJob("ZZZZZZZZ").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tundish::jobs
