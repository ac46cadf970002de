#include "server/store/store.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/store/scratch.h"

namespace tundish::store {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Store> Opened(const Scratch& scratch, const Options& options = {}) {
  auto store = Store::Open(scratch.database(), options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

WriteBatch OneOfEach() {
  WriteBatch batch = NewJob("J1");
  v1::Arrangement arrangement;
  arrangement.set_job_id("J1");
  for (const std::uint32_t epoch : {2, 10, 1}) {
    arrangement.set_job_epoch(epoch);
    batch.PutArrangement(arrangement);
  }
  v1::RequestRecord request;
  request.set_tenant("default");
  request.set_request_id("r1");
  request.set_job_id("J1");
  batch.AddRequest(request);
  for (const char* name : {"a", "b"}) {
    v1::NodeRecord node;
    node.set_node(name);
    node.set_drained(true);
    batch.PutNode(node);
  }
  v1::CheckpointRecord checkpoint;
  checkpoint.set_job_id("J1");
  for (const std::uint32_t step : {100, 20}) {
    checkpoint.mutable_artifact()->set_step(step);
    batch.PutCheckpoint(checkpoint);
  }
  v1::Incident incident;
  for (const std::uint32_t number : {2, 1}) {
    incident.set_number(number);
    batch.PutIncident("J1", incident);
  }
  batch.AppendAudit({});
  batch.PutSetting("quota", "a", "first");
  batch.PutSetting("quota", "a", std::string("second\0", 7));
  batch.PutSetting("schedule", "a", "weekly");
  for (std::uint32_t seq = 1; seq <= 5; ++seq) batch.AppendUpdate("J1", Update(seq));
  return batch;
}

void ExpectOneOfEach(const State& state) {
  ASSERT_EQ(state.jobs.size(), 1u);
  const StoredJob& job = state.jobs.at("J1");
  EXPECT_EQ(job.job.state(), v1::PENDING);
  ASSERT_TRUE(job.arrangement);
  EXPECT_EQ(job.arrangement->job_epoch(), 10u);
  ASSERT_EQ(job.incidents.size(), 2u);
  EXPECT_EQ(job.incidents[0].number(), 1u);
  ASSERT_EQ(job.checkpoints.size(), 2u);
  EXPECT_EQ(job.checkpoints[0].artifact().step(), 20u);
  EXPECT_EQ(job.last_seq, 5u);
  EXPECT_EQ(job.progress.step(), 0u);
  ASSERT_EQ(state.requests.size(), 1u);
  EXPECT_EQ(state.requests[0].job_id(), "J1");
  ASSERT_EQ(state.nodes.size(), 2u);
  EXPECT_TRUE(state.nodes[1].drained());
  ASSERT_EQ(state.settings.size(), 2u);
  EXPECT_EQ(state.settings[0].blob, std::string("second\0", 7));
  EXPECT_EQ(state.settings[1].kind, "schedule");
}

TEST(StoreTest, LoadsWhatWasWrittenAlsoAfterOpeningAgain) {
  const Scratch scratch;
  {
    const auto store = Opened(scratch);
    ASSERT_EQ(CommitNow(*store, OneOfEach()), absl::OkStatus());
    ExpectOneOfEach(*store->LoadState());
  }
  const auto store = Opened(scratch);
  ExpectOneOfEach(*store->LoadState());
}

TEST(StoreTest, PutsReplaceAndDeletesDelete) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  ASSERT_EQ(CommitNow(*store, OneOfEach()), absl::OkStatus());
  WriteBatch batch;
  v1::Job job;
  job.set_job_id("J1");
  job.set_state(v1::RUNNING);
  batch.PutJob(job);
  v1::JobProgress progress;
  progress.set_job_id("J1");
  progress.set_step(7);
  batch.PutProgress(progress);
  progress.set_step(8);
  batch.PutProgress(progress);
  batch.DeleteNode("a");
  batch.DeleteNode("never there");
  batch.DeleteSetting("quota", "a");
  batch.DeleteCheckpoint("J1", 20);
  ASSERT_EQ(CommitNow(*store, std::move(batch)), absl::OkStatus());
  const auto state = store->LoadState();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->jobs.at("J1").job.state(), v1::RUNNING);
  EXPECT_EQ(state->jobs.at("J1").progress.step(), 8u);
  EXPECT_EQ(state->jobs.at("J1").checkpoints.size(), 1u);
  ASSERT_EQ(state->nodes.size(), 1u);
  EXPECT_EQ(state->nodes[0].node(), "b");
}

TEST(StoreTest, AnEmptyDatabaseIsAnEmptyState) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  const auto state = store->LoadState();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->jobs.empty() && state->requests.empty() && state->nodes.empty());
  EXPECT_TRUE(store->ReadUpdates("none", 0, 10)->empty());
  EXPECT_EQ(CommitNow(*store, WriteBatch()), absl::OkStatus());
}

TEST(StoreTest, ReadsUpdatesInPages) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  for (std::uint32_t seq = 1; seq <= 10; ++seq) {
    ASSERT_EQ(CommitNow(*store, Step("J", seq)), absl::OkStatus());
    ASSERT_EQ(CommitNow(*store, Step("K", seq)), absl::OkStatus());
  }
  struct Case {
    std::uint32_t after;
    int limit;
    std::vector<std::uint32_t> want;
  };
  for (const Case& c :
       {Case{0, 3, {1, 2, 3}}, Case{3, 100, {4, 5, 6, 7, 8, 9, 10}}, Case{10, 100, {}},
        Case{0xffffffff, 1, {}}, Case{0, 0, {}}, Case{0, -1, {}}}) {
    const auto updates = store->ReadUpdates("J", c.after, c.limit);
    ASSERT_TRUE(updates.ok()) << updates.status();
    std::vector<std::uint32_t> seqs;
    for (const v1::JobUpdate& update : *updates) seqs.push_back(update.seq());
    EXPECT_EQ(seqs, c.want);

    std::promise<Store::Updates> promise;
    store->ReadUpdatesAsync("J", c.after, c.limit,
                            [&](Store::Updates read) { promise.set_value(std::move(read)); });
    EXPECT_EQ(promise.get_future().get()->size(), c.want.size());
  }
}

TEST(StoreTest, AUniqueKeyFailsItsBatchAlone) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  v1::RequestRecord request;
  request.set_tenant("t");
  request.set_request_id("r");
  request.set_job_id("J1");
  const auto submit = [&](const std::string& job_id) {
    WriteBatch batch = NewJob(job_id);
    request.set_job_id(job_id);
    batch.AddRequest(request);
    return batch;
  };
  // Queued together, so most likely one group: only the doubles fail, wholly.
  std::vector<absl::StatusCode> codes;
  const auto note = [&](absl::Status status) { codes.push_back(status.code()); };
  store->Commit(submit("J1"), note);
  store->Commit(submit("J2"), note);
  store->Commit(Step("J1", 1), note);
  store->Commit(Step("J1", 1), note);
  store->Commit(Step("J1", 2), note);
  store->Flush();
  using enum absl::StatusCode;
  EXPECT_THAT(codes, testing::ElementsAre(kOk, kAlreadyExists, kOk, kAlreadyExists, kOk));
  const auto state = store->LoadState();
  EXPECT_EQ(state->jobs.size(), 1u) << "J2 must not be there without its request";
  EXPECT_EQ(state->jobs.at("J1").last_seq, 2u);
}

TEST(StoreTest, AnswersInTheOrderOfCommits) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  std::vector<std::uint32_t> answered;  // Written on the writer thread only, read after Flush.
  for (std::uint32_t seq = 1; seq <= 3000; ++seq) {
    store->Commit(Step("J", seq), [&answered, seq](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      answered.push_back(seq);
    });
  }
  store->Flush();
  ASSERT_EQ(answered.size(), 3000u);
  for (std::uint32_t i = 0; i < answered.size(); ++i) ASSERT_EQ(answered[i], i + 1);
}

TEST(StoreTest, ManyThreadsCommitAndRead) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string job = "J" + std::to_string(t);
      for (std::uint32_t seq = 1; seq <= 200; ++seq) {
        store->Commit(Step(job, seq), [&](absl::Status status) { done += status.ok() ? 1 : 0; });
        if (seq % 50 == 0) {
          EXPECT_TRUE(store->ReadUpdates(job, 0, 1000).ok());
        }
      }
      store->Flush();
      EXPECT_EQ(store->ReadUpdates(job, 0, 1000)->size(), 200u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 800);
}

TEST(StoreTest, CloseFinishesWhatWasCommittedAndRefusesTheRest) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  int done = 0;
  for (std::uint32_t seq = 1; seq <= 500; ++seq) {
    store->Commit(Step("J", seq), [&](absl::Status status) { done += status.ok() ? 1 : 0; });
  }
  store->Close();
  store->Close();
  EXPECT_EQ(done, 500);
  absl::Status late;
  store->Commit(Step("J", 501), [&](absl::Status status) { late = std::move(status); });
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->ReadUpdates("J", 0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->LoadState().status().code(), absl::StatusCode::kFailedPrecondition);
  bool refused = false;
  store->ReadUpdatesAsync("J", 0, 1, [&](Store::Updates read) { refused = !read.ok(); });
  EXPECT_TRUE(refused);
  EXPECT_EQ(Opened(scratch)->ReadUpdates("J", 0, 1000)->size(), 500u);
}

TEST(StoreTest, AFullDiskRefusesAndTheStoreStaysUsable) {
  const Scratch scratch;
  const auto store = Opened(scratch, {.max_pages = 64});
  ASSERT_EQ(CommitNow(*store, NewJob("J")), absl::OkStatus());
  std::uint32_t written = 0;
  absl::Status status;
  while (status.ok() && written < 100) {
    status = CommitNow(*store, Step("J", written + 1, 16000));
    if (status.ok()) ++written;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(written, 5u);
  // Nothing of the refused batch is there, what was answered is, and small changes still work.
  auto state = store->LoadState();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->jobs.at("J").last_seq, written);
  EXPECT_EQ(state->jobs.at("J").progress.step(), written);
  WriteBatch small;
  v1::JobProgress progress = state->jobs.at("J").progress;
  progress.set_failures(1);
  small.PutProgress(progress);
  EXPECT_EQ(CommitNow(*store, std::move(small)), absl::OkStatus());
  store->Close();

  const auto roomy = Opened(scratch);
  EXPECT_EQ(CommitNow(*roomy, Step("J", written + 1, 16000)), absl::OkStatus());
}

TEST(StoreTest, TooMuchWaitingIsRefusedInTurn) {
  const Scratch scratch;
  const auto store = Opened(scratch, {.queue_bytes = 4096});
  absl::Status status;
  std::vector<int> order;
  std::promise<void> go;
  auto gate = go.get_future().share();
  // The writer is held in the first answer, so what follows has to queue.
  store->Commit(Step("J", 1), [&, gate](absl::Status) {
    gate.wait();
    order.push_back(1);
  });
  std::promise<void> second;
  store->Commit(Step("J", 2, 8000), [&](absl::Status refused) {
    status = std::move(refused);
    order.push_back(2);
  });
  store->Commit(Step("J", 3), [&](absl::Status) { order.push_back(3); });
  go.set_value();
  store->Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 4096"));
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(store->ReadUpdates("J", 0, 10)->size(), 2u);
}

TEST(StoreTest, PrintsThroughput) {
  const Scratch scratch;
  const auto store = Opened(scratch);
  const auto measure = [&](const char* what, int count, bool one_by_one) {
    static std::uint32_t seq = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      store->Commit(Step("J", ++seq), [](absl::Status status) { EXPECT_TRUE(status.ok()); });
      if (one_by_one) store->Flush();
    }
    store->Flush();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %.0f durable batches/s\n", what, count / took.count());
  };
  measure("one after the other", 100, true);
  measure("queued", 5000, false);
}

}  // namespace
}  // namespace tundish::store
