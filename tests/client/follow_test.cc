#include "client/link/follow.h"

#include <chrono>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"

namespace tundish::client {
namespace {

using std::chrono::milliseconds;

v1::Job RunningJob() {
  v1::Job job;
  job.set_job_id("01JOBAAAAAAAAAAAAAAAAAAAAA");
  job.set_state(v1::RUNNING);
  return job;
}

struct Seen {
  std::vector<uint32_t> seqs;
  std::vector<std::string> notices;
  std::function<void(const v1::JobUpdate&)> on_update = [](const v1::JobUpdate&) {};

  FollowCallbacks Callbacks() {
    return {.update =
                [this](const v1::JobUpdate& update) {
                  seqs.push_back(update.seq());
                  on_update(update);
                },
            .notice = [this](const std::string& text) { notices.push_back(text); }};
  }
};

v1::WatchJobRequest Request() {
  v1::WatchJobRequest request;
  request.set_job_id("01JOBAAAAAAAAAAAAAAAAAAAAA");
  return request;
}

TEST(FollowJobTest, EndsWithTheTerminalEvent) {
  FakeState state;
  state.SetJob(RunningJob());
  state.AddMetric(0, 1.0);
  state.AddEvent(v1::FAILED, "data_unreadable");
  FakeCoordinator server(state);
  Coordinator coordinator(server.address());
  Seen seen;
  const auto end = FollowJob(coordinator, Request(), seen.Callbacks());
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, v1::FAILED);
  EXPECT_EQ(seen.seqs, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(seen.notices.empty());
}

TEST(FollowJobTest, AsksForTheStateWhenTheTerminalEventLiesBefore) {
  FakeState state;
  state.SetJob(RunningJob());
  state.AddEvent(v1::SUCCEEDED, "all_ranks_finished");
  FakeCoordinator server(state);
  Coordinator coordinator(server.address());
  Seen seen;
  v1::WatchJobRequest request = Request();
  request.set_after_seq(1);
  const auto end = FollowJob(coordinator, request, seen.Callbacks());
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, v1::SUCCEEDED);
  EXPECT_TRUE(seen.seqs.empty());
}

TEST(FollowJobTest, GoesOnBehindARestartedCoordinator) {
  FakeState state;
  state.SetJob(RunningJob());
  for (uint32_t step = 0; step < 3; ++step) state.AddMetric(step, 1.0);
  std::optional<FakeCoordinator> server(std::in_place, state);
  const int port = server->port();
  Coordinator coordinator(server->address());
  state.BreakStreamsBehind(3);
  Seen seen;
  bool restarted = false;
  seen.on_update = [&](const v1::JobUpdate& update) {
    if (update.seq() != 3 || restarted) return;
    restarted = true;
    server.reset();
    state.BreakStreamsBehind(0);
    for (uint32_t step = 3; step < 5; ++step) state.AddMetric(step, 1.0);
    state.AddEvent(v1::SUCCEEDED, "all_ranks_finished");
    server.emplace(state, port);
  };
  const auto end = FollowJob(coordinator, Request(), seen.Callbacks());
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, v1::SUCCEEDED);
  EXPECT_EQ(seen.seqs, (std::vector<uint32_t>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(seen.notices.size(), 2u);
  EXPECT_NE(seen.notices[0].find("lost the coordinator at 127.0.0.1:"), std::string::npos);
  EXPECT_NE(seen.notices[1].find("is back"), std::string::npos);
}

TEST(FollowJobTest, DropsWhatAServerRepeats) {
  FakeState state;
  state.SetJob(RunningJob());
  state.AddMetric(0, 1.0);
  v1::JobUpdate dropped;
  dropped.mutable_dropped()->set_first(2);
  dropped.mutable_dropped()->set_last(3);
  state.Add(dropped);       // seq 2, covers 3
  state.AddMetric(1, 1.0);  // seq 3, already covered
  state.AddEvent(v1::SUCCEEDED, "all_ranks_finished");
  FakeCoordinator server(state);
  Coordinator coordinator(server.address());
  Seen seen;
  ASSERT_TRUE(FollowJob(coordinator, Request(), seen.Callbacks()).ok());
  EXPECT_EQ(seen.seqs, (std::vector<uint32_t>{1, 2, 4}));
}

TEST(FollowJobTest, GivesUpWhenPatienceIsOver) {
  FakeState state;
  state.SetJob(RunningJob());
  state.AddMetric(0, 1.0);
  std::optional<FakeCoordinator> server(std::in_place, state);
  Coordinator coordinator(server->address());
  state.BreakStreamsBehind(1);
  Seen seen;
  seen.on_update = [&](const v1::JobUpdate&) { server.reset(); };
  const auto end = FollowJob(coordinator, Request(), seen.Callbacks(), milliseconds(300));
  EXPECT_EQ(end.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(seen.notices.size(), 1u);
}

TEST(FollowJobTest, ReportsAnUnknownJobAtOnce) {
  FakeState state;
  FakeCoordinator server(state);
  Coordinator coordinator(server.address());
  v1::GetJobRequest request;
  request.set_job_id("nope");
  const auto job = coordinator.Call(&v1::JobService::StubInterface::GetJob, request);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tundish::client
