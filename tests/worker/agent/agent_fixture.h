#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/process/process.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/worker/data/test_images.h"
#include "tundish/v1/agent_state.pb.h"

namespace tundish::agent {

inline constexpr const char* kJob = "job1";
inline constexpr const char* kSecret = "molten";

/// A real `tundish-agent` process with fake ranks, connected to a fake coordinator. Waits are for
/// messages and exits, 30 s at most.
class AgentFixture : public testing::Test {
 protected:
  /// Kills what is left: no process outlives a test.
  void TearDown() override;

  /// Starts an agent (on the same state directory each time) and waits for its Register, which is
  /// returned. `environment` is added to the agent's.
  v1::Register StartAgent(const std::vector<std::string>& environment = {},
                          const std::vector<std::string>& flags = {});
  /// Signals the agent and returns how it ended.
  process::Exit StopAgent(int signal);
  /// Waits for the agent to end by itself.
  process::Exit WaitForAgent();

  std::string AgentLog() const;

  v1::WorkerRecord ReadRecord(const std::string& worker) const;
  /// The file in which the agent keeps what it knows of a worker.
  std::string RecordFile(const std::string& worker) const {
    return state_dir() + "/workers/" + worker + "/record.pb";
  }

  // Orders.
  void Send(const v1::CoordinatorMessage& message);
  void StartWorker(const std::string& worker, const std::string& device = "cpu:0",
                   const std::string& job = kJob);
  /// Starts a rank and returns its pid, once it has reported Ready.
  pid_t StartReadyWorker(const std::string& worker, const std::string& device = "cpu:0");
  v1::RankOrder* Order(v1::CoordinatorMessage& message, const std::string& worker,
                       uint32_t job_epoch);
  /// Assigns with a script for the fake rank.
  void Assign(const std::string& worker, uint32_t job_epoch, const std::string& script = "");
  void OrderExit(const std::string& worker);
  void Acknowledge(const std::string& worker, uint64_t number);

  // What the coordinator hears.
  v1::AgentMessage Expect(const fakes::FakeCoordinator::Wanted& wanted, const std::string& what);
  v1::RankReport ExpectReport(const std::string& worker,
                              const std::function<bool(const v1::RankReport&)>& wanted,
                              const std::string& what);
  v1::WorkerExited ExpectExit(const std::string& worker);
  /// The text of the next LogLine of `worker` that starts with `prefix`.
  std::string ExpectLog(const std::string& worker, const std::string& prefix);

  /// Nothing from before this call is looked at any more.
  void Forget() { from_ = coordinator_.seen(); }

  data::TempFolder folder_;
  fakes::FakeCoordinator coordinator_;
  size_t from_ = 0;
  int http_port_ = 0;

 private:
  std::string state_dir() const { return folder_.path() / "state"; }

  std::optional<pid_t> agent_;
};

/// Waits until the process `pid` has ended (it need not be a child). False after 30 s.
bool WaitForEnd(pid_t pid);

}  // namespace tundish::agent
