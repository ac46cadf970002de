#include <fstream>
#include <ios>
#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_fixture.h"

namespace tundish::agent {
namespace {

class AdoptionTest : public AgentFixture, public testing::WithParamInterface<int> {};

TEST_P(AdoptionTest, RanksOutliveTheAgentAndAreAdopted) {
  StartAgent();
  const pid_t first = StartReadyWorker("w1", "cpu:0");
  const pid_t second = StartReadyWorker("w2", "cpu:1");
  StopAgent(GetParam());
  ASSERT_TRUE(process::Identify(first).ok()) << "a rank ended with its agent";
  kill(second, SIGKILL);
  ASSERT_TRUE(WaitForEnd(second));

  const v1::Register registration = StartAgent();
  ASSERT_EQ(registration.workers_size(), 2);
  EXPECT_EQ(registration.workers(0).worker_id(), "w1");
  EXPECT_EQ(registration.workers(0).job_id(), kJob);
  EXPECT_EQ(registration.workers(0).pid(), static_cast<uint32_t>(first));
  EXPECT_EQ(registration.workers(0).devices(0), "cpu:0");
  EXPECT_EQ(registration.workers(1).worker_id(), "w2") << "its exit comes right behind";
  const v1::WorkerExited gone = ExpectExit("w2");
  EXPECT_TRUE(gone.adopted());
  EXPECT_EQ(gone.signal(), 0) << "only a parent is told";

  // The adopted rank attached again by itself; an order given before that reaches it.
  Assign("w1", 2);
  const v1::RankReport formed = ExpectReport(
      "w1", [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
  EXPECT_EQ(formed.job_epoch(), 2u);
  kill(first, SIGKILL);
  EXPECT_EQ(ExpectExit("w1").worker_id(), "w1");
}

INSTANTIATE_TEST_SUITE_P(EndOfTheAgent, AdoptionTest, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& info) {
                           return info.param == SIGKILL ? "Killed" : "Term";
                         });

TEST_F(AgentFixture, FindsARankWhoseStartWasNotRecordedToItsEnd) {
  StartAgent();
  const pid_t rank = StartReadyWorker("w1");
  StopAgent(SIGKILL);
  v1::WorkerRecord record = ReadRecord("w1");
  const uint64_t ticks = record.start_ticks();
  record.clear_pid();
  record.clear_start_ticks();
  record.clear_boot_id();
  std::ofstream(RecordFile("w1"), std::ios::binary) << record.SerializeAsString();

  const v1::Register registration = StartAgent();
  ASSERT_EQ(registration.workers_size(), 1);
  EXPECT_EQ(registration.workers(0).pid(), static_cast<uint32_t>(rank));
  EXPECT_EQ(ReadRecord("w1").start_ticks(), ticks) << "the next agent need not search";
  Assign("w1", 2);
  ExpectReport(
      "w1", [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
}

TEST_F(AgentFixture, TellsTheEndOfARankWhoseStartNeverHappened) {
  StartAgent();
  const pid_t rank = StartReadyWorker("w1");
  StopAgent(SIGKILL);
  kill(rank, SIGKILL);
  ASSERT_TRUE(WaitForEnd(rank));
  v1::WorkerRecord record = ReadRecord("w1");
  record.clear_pid();
  std::ofstream(RecordFile("w1"), std::ios::binary) << record.SerializeAsString();
  StartAgent();
  EXPECT_EQ(ExpectExit("w1").job_id(), kJob);
}

TEST_F(AgentFixture, KillsARankWhoseRecordIsLostBeforeItTellsItsEnd) {
  StartAgent();
  const pid_t rank = StartReadyWorker("w1", "cpu:1");
  StopAgent(SIGKILL);
  std::ofstream(RecordFile("w1"), std::ios::binary) << "rubbish";
  const v1::Register registration = StartAgent();
  if (registration.workers_size() == 1) {  // Its device is not offered while it still runs.
    EXPECT_EQ(registration.workers(0).devices(0), "cpu:1");
  }
  EXPECT_EQ(ExpectExit("w1").job_id(), kJob);
  EXPECT_FALSE(process::Identify(rank).ok());
}

TEST_F(AgentFixture, TellsAnExitAgainWhoseNewsMayHaveBeenLost) {
  StartAgent();
  StartReadyWorker("w1");
  Assign("w1", 1, "exit 5");
  EXPECT_EQ(ExpectExit("w1").exit_code(), 5);
  StopAgent(SIGKILL);
  StartAgent();  // Knows it from the record.
  const v1::WorkerExited again = ExpectExit("w1");
  EXPECT_EQ(again.exit_code(), 5);
  EXPECT_FALSE(again.adopted());
}

TEST_F(AgentFixture, SigintStopsTheRanksTooAndSaysSo) {
  StartAgent();
  const pid_t first = StartReadyWorker("w1", "cpu:0");
  const pid_t second = StartReadyWorker("w2", "cpu:1");
  EXPECT_EQ(StopAgent(SIGINT).code, 0);
  EXPECT_FALSE(process::Identify(first).ok());
  EXPECT_FALSE(process::Identify(second).ok());
  EXPECT_EQ(ExpectExit("w1").signal(), SIGKILL);
  EXPECT_EQ(ExpectExit("w2").signal(), SIGKILL);
}

TEST_F(AgentFixture, StopsWithoutACoordinator) {
  StartAgent();
  const pid_t rank = StartReadyWorker("w1");
  coordinator_.Stop();
  EXPECT_EQ(StopAgent(SIGINT).code, 0);
  EXPECT_FALSE(process::Identify(rank).ok());
}

}  // namespace
}  // namespace tundish::agent
