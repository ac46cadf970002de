#include <map>
#include <signal.h>
#include <sstream>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_fixture.h"
#include "worker/agent/state_dir.h"

namespace tundish::agent {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;
using ::testing::Not;

std::string GetPage(int port, const std::string& path) {
  asio::ip::tcp::iostream stream;
  stream.connect("127.0.0.1", std::to_string(port));
  stream << "GET " << path << " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  stream.flush();
  std::ostringstream page;
  page << stream.rdbuf();
  return page.str();
}

class ProgramTest : public AgentFixture {};

TEST_F(ProgramTest, RegistersStartsARankAndRelaysBothWays) {
  const v1::Register registration = StartAgent();
  EXPECT_EQ(registration.version(), TUNDISH_VERSION);
  EXPECT_EQ(registration.devices_size(), 3);
  EXPECT_EQ(registration.data_address(), "127.0.0.1");
  EXPECT_EQ(registration.workers_size(), 0);
  Expect([](const v1::AgentMessage& m) { return m.has_heartbeat(); }, "Heartbeat");

  const pid_t pid = StartReadyWorker("w1", "cpu:1");
  EXPECT_TRUE(process::Identify(pid).ok());
  Assign("w1", 4);
  const v1::RankReport formed = ExpectReport(
      "w1", [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
  EXPECT_EQ(formed.job_epoch(), 4u);
  EXPECT_EQ(formed.job_id(), kJob);
  Acknowledge("w1", 2);
  EXPECT_EQ(ExpectLog("w1", "ack"), "ack 2");

  const std::string page = GetPage(http_port_, "/metrics");
  EXPECT_THAT(page, HasSubstr("\ntundish_agent_workers 1\n"));
  EXPECT_THAT(page, HasSubstr("\ntundish_agent_coordinator_connected 1\n"));
  EXPECT_THAT(page, Not(HasSubstr("\ntundish_agent_reports_relayed_total 0\n")));

  OrderExit("w1");
  const v1::WorkerExited exited = ExpectExit("w1");
  EXPECT_EQ(exited.exit_code(), 0);
  EXPECT_EQ(exited.signal(), 0);
  EXPECT_FALSE(exited.adopted());
  EXPECT_THAT(exited.log_tail(), HasSubstr("--threads 2\n"));
  EXPECT_THAT(exited.log_tail(), HasSubstr("--devices cpu:1\n"));
  EXPECT_THAT(GetPage(http_port_, "/metrics"),
              HasSubstr("tundish_agent_worker_exits_total{cause=\"finished\"} 1\n"));
  EXPECT_EQ(StopAgent(SIGTERM).code, 0);
}

TEST_F(ProgramTest, TellsAKillAndStopsTheOtherRanksOfTheJobUnasked) {
  StartAgent();
  const pid_t lost = StartReadyWorker("w1", "cpu:0");
  StartReadyWorker("w2", "cpu:1");
  const pid_t spare = StartReadyWorker("w3", "cpu:2");
  for (const char* worker : {"w1", "w2"}) {
    Assign(worker, 3);
    ExpectReport(
        worker, [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
  }
  Forget();
  kill(spare, SIGKILL);  // In no arrangement: nobody is stopped for it.
  EXPECT_EQ(ExpectExit("w3").signal(), SIGKILL);
  kill(lost, SIGKILL);
  const v1::RankReport stopped = ExpectReport(
      "w2", [](const v1::RankReport& r) { return r.has_stopped(); }, "Stopped");
  EXPECT_EQ(stopped.stopped().cause(), "stop 3");
  EXPECT_EQ(stopped.number(), 3u) << "it was stopped once: Ready, Formed, Stopped";
  const v1::WorkerExited exited = ExpectExit("w1");
  EXPECT_EQ(exited.signal(), SIGKILL);
  EXPECT_EQ(exited.job_id(), kJob);
  EXPECT_GT(exited.observed_ms(), 0);
  EXPECT_LT(exited.observed_ms(), 5000);
}

TEST_F(ProgramTest, TellsTheExitCodeAndTheLastWords) {
  StartAgent();
  StartReadyWorker("w1");
  Assign("w1", 1, "exit 17");
  const v1::WorkerExited exited = ExpectExit("w1");
  EXPECT_EQ(exited.exit_code(), 17);
  EXPECT_THAT(exited.log_tail(), HasSubstr("leaving with 17\n"));
}

TEST_F(ProgramTest, KillsOnOrderAndAnswersForAWorkerItDoesNotKnow) {
  StartAgent();
  StartReadyWorker("w1");
  for (const char* worker : {"w1", "w9"}) {
    v1::CoordinatorMessage message;
    message.mutable_kill_worker()->set_worker_id(worker);
    message.mutable_kill_worker()->set_job_id(kJob);
    Send(message);
  }
  EXPECT_EQ(ExpectExit("w1").signal(), SIGKILL);
  EXPECT_TRUE(ExpectExit("w9").adopted());
}

TEST_F(ProgramTest, NamesWhyAWorkerCannotStart) {
  StartAgent();
  StartWorker("w1", "cpu:7");
  const v1::StartFailed failed =
      Expect([](const v1::AgentMessage& m) { return m.has_start_failed(); }, "StartFailed")
          .start_failed();
  EXPECT_EQ(failed.worker_id(), "w1");
  EXPECT_THAT(failed.error(), HasSubstr("no device 'cpu:7'; it has cpu:0, cpu:1, cpu:2"));
  Forget();
  StartWorker("../w1");
  Expect([](const v1::AgentMessage& m) { return m.has_start_failed(); }, "StartFailed");
}

TEST_F(ProgramTest, RefusesAWrongSecret) {
  StartAgent({"TUNDISH_RANK_FAKE_SECRET=slag"});
  StartWorker("w1");
  const v1::WorkerExited exited = ExpectExit("w1");
  EXPECT_EQ(exited.exit_code(), 7) << "the fake rank leaves with 7 when it is refused";
  EXPECT_THAT(exited.log_tail(), HasSubstr("worker 'w1' of job 'job1' showed none that fits"));
  EXPECT_THAT(coordinator_.Transcript(), Not(HasSubstr("ready")));
}

TEST_F(ProgramTest, ReportsWhatHappenedWhileTheCoordinatorWasAway) {
  StartAgent();
  const pid_t first = StartReadyWorker("w1", "cpu:0");
  StartReadyWorker("w2", "cpu:1");
  Forget();
  coordinator_.Stop();
  kill(first, SIGKILL);
  ASSERT_TRUE(WaitForEnd(first));
  coordinator_.Start();
  const v1::Register again =
      Expect([](const v1::AgentMessage& m) { return m.has_register_(); }, "Register").register_();
  EXPECT_EQ(ExpectExit("w1").signal(), SIGKILL);
  // Whether w1 is listed depends on what the agent saw first: the end of the stream or of the rank.
  const auto alive = std::ranges::find(again.workers(), "w2", &v1::LiveWorker::worker_id);
  ASSERT_NE(alive, again.workers().end());
  EXPECT_TRUE(alive->attached());
  Assign("w2", 2);
  ExpectReport(
      "w2", [](const v1::RankReport& r) { return r.has_formed(); }, "Formed");
}

TEST_F(ProgramTest, RefusesAStateDirectoryInUse) {
  StartAgent();
  process::Command second{.program = AGENT,
                          .arguments = {"--node", "host-b", "--state-dir", folder_.path() / "state",
                                        "--http", "127.0.0.1:0"},
                          .stderr_file = folder_.path() / "second.log"};
  asio::io_context io;
  process::Exit exit;
  const auto process =
      process::Process::Start(io.get_executor(), second, [&](const process::Exit& e) { exit = e; });
  ASSERT_TRUE(process.ok()) << process.status();
  io.run_for(std::chrono::seconds(30));
  EXPECT_TRUE(exit.known);
  EXPECT_EQ(exit.code, 4);
  EXPECT_THAT(ReadTail(folder_.path() / "second.log", 1000),
              HasSubstr("another agent uses the state directory"));
}

}  // namespace
}  // namespace tundish::agent
