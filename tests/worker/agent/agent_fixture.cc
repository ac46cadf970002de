#include "tests/worker/agent/agent_fixture.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern "C" {  // glibc 2.36's header forgets to say so.
#include <sys/pidfd.h>
}

#include "worker/agent/state_dir.h"

namespace tundish::agent {

namespace {

constexpr int kLimitMs = 30'000;

}  // namespace

bool WaitForEnd(pid_t pid) {
  pollfd process{.fd = pidfd_open(pid, 0), .events = POLLIN};
  if (process.fd < 0) return true;  // Gone already.
  const bool ended = poll(&process, 1, kLimitMs) == 1;
  close(process.fd);
  return ended;
}

void AgentFixture::TearDown() {
  if (agent_) StopAgent(SIGKILL);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir() + "/workers", none)) {
    v1::WorkerRecord record;
    std::ifstream file(entry.path() / "record.pb", std::ios::binary);
    if (!file || !record.ParseFromIstream(&file) || record.has_exited()) continue;
    const auto found = process::Identify(static_cast<pid_t>(record.pid()));
    if (!found.ok() || found->start_ticks != record.start_ticks()) continue;
    kill(found->pid, SIGKILL);
    EXPECT_TRUE(WaitForEnd(found->pid));
  }
  if (HasFailure()) {
    ADD_FAILURE() << "the coordinator heard:\n"
                  << coordinator_.Transcript() << "the agent logged:\n"
                  << AgentLog();
  }
}

std::string AgentFixture::AgentLog() const {
  std::ifstream file(folder_.path() / "agent.log");
  return {std::istreambuf_iterator<char>(file), {}};
}

v1::WorkerRecord AgentFixture::ReadRecord(const std::string& worker) const {
  v1::WorkerRecord record;
  std::ifstream file(RecordFile(worker), std::ios::binary);
  EXPECT_TRUE(file && record.ParseFromIstream(&file)) << worker;
  return record;
}

v1::Register AgentFixture::StartAgent(const std::vector<std::string>& environment,
                                      const std::vector<std::string>& flags) {
  process::Command command{.program = AGENT,
                           .arguments = {"--coordinator", coordinator_.address(), "--node",
                                         "host-a", "--devices", "cpu:3", "--state-dir", state_dir(),
                                         "--rank-binary", FAKE_RANK, "--http", "127.0.0.1:0"},
                           .environment = environment,
                           .stdout_file = folder_.path() / "agent.log",
                           .stderr_file = folder_.path() / "agent.log"};
  command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
  Forget();
  const auto pid = process::Spawn(command);
  EXPECT_TRUE(pid.ok()) << pid.status();
  if (!pid.ok()) return {};
  agent_ = *pid;
  const v1::AgentMessage message =
      Expect([](const v1::AgentMessage& m) { return m.has_register_(); }, "Register");
  // The log line with the port is written before the agent connects.
  const std::string log = AgentLog();
  if (const size_t at = log.rfind("http_port="); at != std::string::npos) {
    http_port_ = std::stoi(log.substr(at + 10));
  }
  return message.register_();
}

process::Exit AgentFixture::StopAgent(int signal) {
  kill(*agent_, signal);
  return WaitForAgent();
}

process::Exit AgentFixture::WaitForAgent() {
  process::Exit exit;
  if (!WaitForEnd(*agent_)) {
    ADD_FAILURE() << "the agent did not end";
    kill(*agent_, SIGKILL);
  }
  int status = 0;
  exit.known = waitpid(*agent_, &status, 0) == *agent_;
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  agent_.reset();
  return exit;
}

void AgentFixture::Send(const v1::CoordinatorMessage& message) {
  EXPECT_TRUE(coordinator_.Send(message)) << "no agent is connected";
}

void AgentFixture::StartWorker(const std::string& worker, const std::string& device,
                               const std::string& job) {
  v1::CoordinatorMessage message;
  v1::StartWorker& start = *message.mutable_start_worker();
  start.set_worker_id(worker);
  start.set_job_id(job);
  start.add_devices(device);
  start.set_threads(2);
  start.set_secret(kSecret);
  Send(message);
}

pid_t AgentFixture::StartReadyWorker(const std::string& worker, const std::string& device) {
  StartWorker(worker, device);
  const v1::RankReport ready = ExpectReport(
      worker, [](const v1::RankReport& r) { return r.has_ready(); }, "Ready");
  return static_cast<pid_t>(ready.ready().pid());
}

v1::RankOrder* AgentFixture::Order(v1::CoordinatorMessage& message, const std::string& worker,
                                   uint32_t job_epoch) {
  v1::RankOrder* order = message.mutable_order();
  order->set_worker_id(worker);
  order->set_job_id(kJob);
  order->set_job_epoch(job_epoch);
  return order;
}

void AgentFixture::Assign(const std::string& worker, uint32_t job_epoch,
                          const std::string& script) {
  v1::CoordinatorMessage message;
  Order(message, worker, job_epoch)->mutable_assign()->set_job_folder(script);
  Send(message);
}

void AgentFixture::OrderExit(const std::string& worker) {
  v1::CoordinatorMessage message;
  Order(message, worker, 1)->mutable_exit();
  Send(message);
}

void AgentFixture::Acknowledge(const std::string& worker, uint64_t number) {
  v1::CoordinatorMessage message;
  message.mutable_ack()->set_worker_id(worker);
  message.mutable_ack()->set_number(number);
  Send(message);
}

v1::AgentMessage AgentFixture::Expect(const fakes::FakeCoordinator::Wanted& wanted,
                                      const std::string& what) {
  size_t from = from_;
  const auto message = coordinator_.Wait(wanted, &from);
  EXPECT_TRUE(message.has_value()) << "not heard: " << what;
  return message.value_or(v1::AgentMessage());
}

v1::RankReport AgentFixture::ExpectReport(const std::string& worker,
                                          const std::function<bool(const v1::RankReport&)>& wanted,
                                          const std::string& what) {
  const v1::AgentMessage message = Expect(
      [&](const v1::AgentMessage& m) {
        return m.has_reports() && m.reports().reports(0).worker_id() == worker &&
               wanted(m.reports().reports(0));
      },
      what + " of " + worker);
  return message.has_reports() ? message.reports().reports(0) : v1::RankReport();
}

v1::WorkerExited AgentFixture::ExpectExit(const std::string& worker) {
  return Expect(
             [&](const v1::AgentMessage& m) {
               return m.has_worker_exited() && m.worker_exited().worker_id() == worker;
             },
             "exit of " + worker)
      .worker_exited();
}

std::string AgentFixture::ExpectLog(const std::string& worker, const std::string& prefix) {
  return ExpectReport(
             worker, [&](const v1::RankReport& r) { return r.log().text().starts_with(prefix); },
             "log '" + prefix + "'")
      .log()
      .text();
}

}  // namespace tundish::agent
