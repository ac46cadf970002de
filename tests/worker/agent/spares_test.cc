#include <chrono>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_fixture.h"

namespace tundish::agent {
namespace {

class SparesTest : public AgentFixture {
 protected:
  v1::CoordinatorMessage StartOrder(const std::string& worker, const std::string& device,
                                    uint32_t spares) {
    v1::CoordinatorMessage message;
    v1::StartWorker& start = *message.mutable_start_worker();
    start.set_worker_id(worker);
    start.set_job_id(kJob);
    start.add_devices(device);
    start.set_threads(2);
    start.set_secret(kSecret);
    start.set_warm_spares(spares);
    start.mutable_data()->set_manifest_hash("castings");
    return message;
  }

  pid_t StartWithSpares(const std::string& worker, const std::string& device, uint32_t spares) {
    Send(StartOrder(worker, device, spares));
    return static_cast<pid_t>(ExpectReady(worker));
  }

  uint32_t ExpectReady(const std::string& worker) {
    return ExpectReport(
               worker, [](const v1::RankReport& r) { return r.has_ready(); }, "Ready")
        .ready()
        .pid();
  }

  /// The rank commits a step: from here on its job is to have its spares.
  void Step(const std::string& worker, uint32_t epoch) {
    Assign(worker, epoch, "step");
    ExpectReport(
        worker, [](const v1::RankReport& r) { return r.has_step(); }, "StepDone");
  }

  /// Waits for the agent's log to tell an event that it has not told `before` times.
  void ExpectInLog(const std::string& text, int count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (Count(text) < count && std::chrono::steady_clock::now() < deadline) {
      // Another process's file announces nothing.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(Count(text), count) << text;
  }
  int Count(const std::string& text) const {
    const std::string log = AgentLog();
    int count = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
  }

  /// Spares whose records say that they run.
  std::vector<v1::WorkerRecord> Spares() const {
    std::vector<v1::WorkerRecord> spares;
    std::error_code none;
    const auto workers = std::filesystem::path(RecordFile("x")).parent_path().parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(workers, none)) {
      v1::WorkerRecord record;
      std::ifstream file(entry.path() / "record.pb", std::ios::binary);
      if (file && record.ParseFromIstream(&file) && record.spare() && record.pid() != 0) {
        spares.push_back(record);
      }
    }
    return spares;
  }
};

TEST_F(SparesTest, ASpareTakesALostRanksPlaceAndIsReplaced) {
  StartAgent();
  const pid_t first = StartWithSpares("w1", "cpu:0", 1);
  StartWithSpares("w2", "cpu:1", 1);
  EXPECT_EQ(Count("event=spare_started"), 0) << "while ranks start, they need the processor";
  Step("w2", 1);
  ExpectInLog("event=spare_started", 1);
  Step("w2", 1);
  ASSERT_EQ(Spares().size(), 1u) << "one is enough";
  const v1::WorkerRecord spare = Spares()[0];
  kill(first, SIGKILL);
  ExpectExit("w1");
  Send(StartOrder("w3", "cpu:0", 1));
  EXPECT_EQ(ExpectReady("w3"), spare.pid());
  // It prepares only if it attached before it was needed; either way it becomes the rank.
  EXPECT_THAT(ExpectLog("w3", "prepared"), testing::StartsWith("prepared for "));

  Assign("w3", 2);  // It is a worker like any other.
  ExpectReport(
      "w3", [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
  Step("w3", 3);
  ExpectInLog("event=spare_started", 2);
  Assign("w3", 4, "exit 5");
  const v1::WorkerExited exited = ExpectExit("w3");
  EXPECT_EQ(exited.exit_code(), 5);
  EXPECT_NE(exited.log_tail().find("leaving with 5"), std::string::npos) << exited.log_tail();
}

TEST_F(SparesTest, TwoLossesAtOnceFindOneSpareAndOneNewProcess) {
  StartAgent();
  StartWithSpares("w1", "cpu:0", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 1);
  const uint32_t spare = Spares()[0].pid();
  Send(StartOrder("w2", "cpu:1", 1));
  Send(StartOrder("w3", "cpu:2", 1));
  EXPECT_EQ(ExpectReady("w2"), spare);
  EXPECT_NE(ExpectReady("w3"), spare);
}

TEST_F(SparesTest, SparesOutliveTheAgentAndAreAdopted) {
  StartAgent();
  StartWithSpares("w1", "cpu:0", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 1);
  const v1::WorkerRecord spare = Spares()[0];
  StopAgent(SIGKILL);
  const v1::Register registration = StartAgent();
  ASSERT_EQ(registration.workers_size(), 1) << "the coordinator knows no spares";
  EXPECT_EQ(registration.workers(0).worker_id(), "w1");
  Step("w1", 2);
  Send(StartOrder("w2", "cpu:1", 1));
  EXPECT_EQ(ExpectReady("w2"), spare.pid());

  // The same process is known as its worker after the next death of an agent.
  StopAgent(SIGKILL);
  const v1::Register again = StartAgent();
  ASSERT_EQ(again.workers_size(), 2);
  EXPECT_EQ(again.workers(1).worker_id(), "w2");
  EXPECT_EQ(again.workers(1).pid(), spare.pid());
  kill(static_cast<pid_t>(spare.pid()), SIGKILL);
  EXPECT_EQ(ExpectExit("w2").job_id(), kJob);
}

TEST_F(SparesTest, AnAgentThatDiesBeforeTheSpareHearsWhatItBecame) {
  StartAgent();
  StartWithSpares("w1", "cpu:0", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 1);
  v1::WorkerRecord record = Spares()[0];
  StopAgent(SIGKILL);
  const pid_t pid = static_cast<pid_t>(record.pid());
  // As written by an agent that died right behind it.
  record.set_spare(false);
  record.mutable_start()->set_worker_id("w9");
  record.mutable_start()->set_secret("copper");
  std::ofstream(RecordFile(record.process_id()), std::ios::binary) << record.SerializeAsString();
  const v1::Register registration = StartAgent();
  EXPECT_EQ(registration.workers_size(), 2);
  EXPECT_EQ(static_cast<pid_t>(ExpectReady("w9")), pid);
  kill(pid, SIGKILL);
  EXPECT_EQ(ExpectExit("w9").worker_id(), "w9");
}

TEST_F(SparesTest, SparesGoWithTheLastRankOfTheirJob) {
  StartAgent();
  StartWithSpares("w1", "cpu:0", 2);
  Step("w1", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 2);
  std::vector<pid_t> spares;
  for (const v1::WorkerRecord& record : Spares())
    spares.push_back(static_cast<pid_t>(record.pid()));
  ASSERT_EQ(spares.size(), 2u);
  OrderExit("w1");
  ExpectExit("w1");
  for (const pid_t spare : spares) EXPECT_TRUE(WaitForEnd(spare));
}

TEST_F(SparesTest, ASpareThatDiesIsReplacedAndOneThatNeverStartsIsGivenUp) {
  StartAgent();
  StartWithSpares("w1", "cpu:0", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 1);
  kill(static_cast<pid_t>(Spares()[0].pid()), SIGKILL);
  ExpectInLog("event=spare_ended", 1);
  Step("w1", 1);
  ExpectInLog("event=spare_started", 2);
  StopAgent(SIGINT);

  StartAgent({"TUNDISH_RANK_FAKE_SPARE_FAILS=1"});
  StartWithSpares("w5", "cpu:0", 1);
  const int ended = Count("event=spare_ended");
  for (int i = 1; i <= 3; ++i) {
    Step("w5", 1);
    ExpectInLog("event=spare_ended", ended + i);
  }
  EXPECT_EQ(Count("event=no_more_spares"), 1);
}

}  // namespace
}  // namespace tundish::agent
