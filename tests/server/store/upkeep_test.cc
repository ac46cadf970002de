// What the store does about its own past: older schemas, retention, backups.
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/time_util.h>
#include <gtest/gtest.h>

#include "server/store/migrations.h"
#include "server/store/pruning.h"
#include "server/store/store.h"
#include "tests/server/store/scratch.h"

namespace tundish::store {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::system_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path Fixture(std::int64_t version) {
  return fs::path(TUNDISH_FIXTURES) / fmt::format("v{}.sql", version);
}

class MigrationTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(MigrationTest, AnEarlierVersionsFileLosesNothing) {
  const Scratch scratch;
  const std::string sql = ReadText(Fixture(GetParam()));
  ASSERT_FALSE(sql.empty()) << "version " << GetParam() << " needs " << Fixture(GetParam());
  {
    auto old = Database::Open(scratch.database(), true);
    ASSERT_TRUE(old.ok()) << old.status();
    ASSERT_EQ(old->Execute(sql), absl::OkStatus());
    ASSERT_EQ(*old->QueryNumber("PRAGMA user_version"), GetParam());
  }
  auto store = Store::Open(scratch.database());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto state = (*store)->LoadState();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->jobs.size(), 1u);
  const auto& [id, job] = *state->jobs.begin();
  EXPECT_EQ(job.job.state(), v1::RUNNING);
  EXPECT_EQ(job.job.spec().name(), "weekly");
  EXPECT_EQ(job.progress.step(), 17u);
  EXPECT_EQ(job.arrangement->job_epoch(), 2u);
  ASSERT_EQ(job.incidents.size(), 1u);
  EXPECT_EQ(job.incidents[0].cause(), "killed_by_signal_9");
  ASSERT_EQ(job.checkpoints.size(), 1u);
  EXPECT_EQ(job.checkpoints[0].artifact().bytes(), 99u);
  EXPECT_EQ(job.last_seq, 3u);
  ASSERT_EQ(state->requests.size(), 1u);
  EXPECT_EQ(state->requests[0].request_id(), "weekly-41");
  ASSERT_EQ(state->nodes.size(), 1u);
  EXPECT_TRUE(state->nodes[0].drained());
  EXPECT_EQ((*store)->ReadUpdates(id, 0, 10)->size(), 3u);
  // And it works on.
  EXPECT_EQ(CommitNow(**store, Step(id, 4)), absl::OkStatus());
  (*store)->Close();
  auto now = Database::Open(scratch.database(), false);
  EXPECT_EQ(*now->QueryNumber("PRAGMA user_version"), kSchemaVersion);
  EXPECT_EQ(*now->QueryNumber("SELECT count(*) FROM audit"), 1);
}

INSTANTIATE_TEST_SUITE_P(EveryEarlierVersion, MigrationTest,
                         testing::Range<std::int64_t>(1, kSchemaVersion));

TEST(MigrationsTest, AFreshDatabaseEqualsAMigratedOne) {
  const auto schema = [](const fs::path& path) {
    auto database = Database::Open(path, false);
    return *database->QueryText(
        "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY name)");
  };
  const Scratch fresh;
  Store::Open(fresh.database()).value()->Close();
  const Scratch migrated;
  {
    auto old = Database::Open(migrated.database(), true);
    ASSERT_EQ(old->Execute(ReadText(Fixture(1))), absl::OkStatus());
  }
  Store::Open(migrated.database()).value()->Close();
  EXPECT_EQ(schema(fresh.database()), schema(migrated.database()));
}

/// A job of `steps` steps, one per minute from `begin` on; every tenth update is a log, and events
/// stand at the start and the end.
std::uint32_t FillJob(Store& store, const std::string& job, int steps,
                      system_clock::time_point begin) {
  std::uint32_t seq = 0;
  WriteBatch batch;
  const auto add = [&](v1::JobUpdate update, int minute) {
    update.set_seq(++seq);
    *update.mutable_time() = google::protobuf::util::TimeUtil::SecondsToTimestamp(
        std::chrono::duration_cast<std::chrono::seconds>(begin.time_since_epoch()).count() +
        60 * minute);
    batch.AppendUpdate(job, update);
  };
  v1::JobUpdate event;
  event.mutable_event()->set_type("state_changed");
  add(event, 0);
  for (int step = 0; step < steps; ++step) {
    v1::JobUpdate metric;
    metric.mutable_metric()->set_step(step);
    add(metric, step);
    if (step % 10 == 5) {
      v1::JobUpdate log;
      log.mutable_log()->set_text("line");
      add(log, step);
    }
  }
  add(event, steps);
  EXPECT_EQ(CommitNow(store, std::move(batch)), absl::OkStatus());
  return seq;
}

PruneResult PruneNow(Store& store, PruneRequest request) {
  Store::Pruned result = absl::UnknownError("not answered");
  std::promise<void> done;
  store.PruneUpdates(std::move(request), [&](Store::Pruned pruned) {
    result = std::move(pruned);
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(PruneResult());
}

/// Every seq is there or in a range; returns the steps that are left.
std::vector<int> Covered(Store& store, const std::string& job, std::uint32_t last,
                         const std::string& reason) {
  std::vector<int> steps;
  std::uint32_t next = 1;
  const auto updates = store.ReadUpdates(job, 0, 100000);
  EXPECT_TRUE(updates.ok()) << updates.status();
  for (const v1::JobUpdate& update : *updates) {
    if (update.has_dropped()) {
      EXPECT_EQ(update.dropped().first(), next);
      EXPECT_EQ(update.dropped().reason(), reason);
      next = update.dropped().last() + 1;
      continue;
    }
    EXPECT_EQ(update.seq(), next) << update.ShortDebugString();
    next = update.seq() + 1;
    if (update.has_metric()) steps.push_back(update.metric().step());
  }
  EXPECT_EQ(next, last + 1);
  return steps;
}

TEST(PruningTest, ThinnedPointsLeaveARangeThatSaysWhy) {
  const Scratch scratch;
  auto store = Store::Open(scratch.database()).value();
  const auto begin = system_clock::now() - hours(100);
  const std::uint32_t last = FillJob(*store, "J", 60, begin);
  PruneRequest request{.job_id = "J",
                       .before = begin + std::chrono::minutes(40),
                       .keep_every_step = 10,
                       .reason = "down_sampling"};
  // In pieces of any size, and again: the same.
  for (const int rows : {7, 2000, 3}) {
    request.most_rows = rows;
    request.after_seq = 0;
    for (PruneResult result; !result.done; request.after_seq = result.through_seq) {
      result = PruneNow(*store, request);
    }
    std::vector<int> want = {0, 10, 20, 30};
    for (int step = 40; step < 60; ++step) want.push_back(step);
    EXPECT_EQ(Covered(*store, "J", last, "down_sampling"), want);
  }
  // A reader that stands inside a range hears of the rest of it.
  const auto inside = store->ReadUpdates("J", 4, 1);
  ASSERT_EQ(inside->size(), 1u);
  EXPECT_EQ((*inside)[0].dropped().last(), 7u) << "up to the log of step 5";
}

TEST(PruningTest, AnEndedJobKeepsItsEvents) {
  const Scratch scratch;
  auto store = Store::Open(scratch.database()).value();
  const std::uint32_t last = FillJob(*store, "J", 60, system_clock::now() - hours(100));
  FillJob(*store, "K", 60, system_clock::now() - hours(100));
  const PruneResult result = PruneNow(
      *store,
      {.job_id = "J", .before = system_clock::now(), .keep_logs = false, .reason = "retention"});
  EXPECT_TRUE(result.done);
  EXPECT_EQ(result.removed, 66);
  EXPECT_THAT(Covered(*store, "J", last, "retention"), ElementsAre());
  EXPECT_EQ(store->ReadUpdates("J", 0, 100)->size(), 3u) << "event, range, event";
  EXPECT_EQ(Covered(*store, "K", last, "").size(), 60u) << "another job's are left alone";
  EXPECT_EQ(CommitNow(*store, Step("J", last + 1)), absl::OkStatus());
}

TEST(PruningTest, ARemovedJobLeavesNothing) {
  const Scratch scratch;
  auto store = Store::Open(scratch.database()).value();
  for (const char* id : {"J", "K"}) {
    WriteBatch batch = NewJob(id);
    v1::RequestRecord request;
    request.set_request_id(id);
    request.set_job_id(id);
    batch.AddRequest(request);
    ASSERT_EQ(CommitNow(*store, std::move(batch)), absl::OkStatus());
    FillJob(*store, id, 5, system_clock::now());
  }
  std::promise<absl::Status> removed;
  store->RemoveJob("J", [&](absl::Status status) { removed.set_value(std::move(status)); });
  EXPECT_EQ(removed.get_future().get(), absl::OkStatus());
  const auto state = store->LoadState();
  EXPECT_EQ(state->jobs.size(), 1u);
  EXPECT_EQ(state->requests.size(), 1u);
  EXPECT_TRUE(store->ReadUpdates("J", 0, 10)->empty());
  EXPECT_FALSE(store->ReadUpdates("K", 0, 10)->empty());
}

TEST(BackupTest, ACopyTakenUnderLoadIsWholeAndOpens) {
  const Scratch scratch;
  auto store = Store::Open(scratch.database()).value();
  ASSERT_EQ(CommitNow(*store, NewJob("J")), absl::OkStatus());
  std::atomic<bool> stop = false;
  std::thread load([&] {
    for (std::uint32_t seq = 1; !stop; ++seq) CommitNow(*store, Step("J", seq, 2000));
  });
  const fs::path copy = scratch / "copy.db";
  EXPECT_EQ(store->BackUp(copy), absl::OkStatus());
  stop = true;
  load.join();
  EXPECT_EQ(store->BackUp(copy).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store->BackUp(scratch / "none" / "copy.db").code(), absl::StatusCode::kUnavailable);

  auto restored = Store::Open(copy);
  ASSERT_TRUE(restored.ok()) << restored.status();
  const auto state = (*restored)->LoadState();
  ASSERT_TRUE(state.ok()) << state.status();
  const StoredJob& job = state->jobs.at("J");
  EXPECT_EQ(job.progress.last_seq(), job.last_seq) << "half a batch is in the copy";
  EXPECT_EQ((*restored)->ReadUpdates("J", 0, 1'000'000)->size(), job.last_seq);
  EXPECT_EQ(CommitNow(**restored, Step("J", job.last_seq + 1)), absl::OkStatus());
}

}  // namespace
}  // namespace tundish::store
