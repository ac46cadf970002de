#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <fmt/format.h>

#include "runtime/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/check_data_command.h"
#include "worker/agent/options.h"

namespace {

namespace fs = std::filesystem;
using tundish::agent::Agent;
using tundish::agent::Options;

constexpr int kUsage = 2;
constexpr int kRefused = 4;

int Threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Options Defaults() {
  Options options;
  const fs::path self = fs::read_symlink("/proc/self/exe");
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  options.node = host;
  std::ranges::transform(options.node, options.node.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  if (const std::string set = Environment("TUNDISH_COORDINATOR"); !set.empty()) {
    options.coordinator = set;
  }
  options.devices = fmt::format("cpu:{}", Threads());
  const std::string state_home = Environment("XDG_STATE_HOME");
  options.state_dir =
      (state_home.empty() ? fs::path(Environment("HOME")) / ".local/state" : fs::path(state_home)) /
      "tundish/agent";
  options.rank_binary = self.parent_path() / "tundish-rank";
  options.check_command = {self.string(), "check-data"};
  return options;
}

int Fail(const absl::Status& status) {
  fmt::print(stderr, "tundish-agent: {}\n", std::string(status.message()));
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? kUsage : kRefused;
}

/// Runs the agent until SIGTERM (ranks go on) or SIGINT (ranks end too).
int Serve(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // Before any thread exists: all inherit the mask, and only sigwait() below sees these signals.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (absl::Status logging = tundish::InitLogging("tundish-agent", options.log_level);
      !logging.ok()) {
    return Fail(logging);
  }
  auto agent = Agent::Start(options);
  if (!agent.ok()) return Fail(agent.status());
  int received = 0;
  sigwait(&signals, &received);
  (*agent)->Stop(received == SIGINT);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = Defaults();
  CLI::App app(
      "Offers this host's devices to a Tundish coordinator and runs ranks on them.\n"
      "SIGTERM stops the agent and leaves its ranks to the next one; SIGINT stops both.");
  app.set_version_flag("--version", std::string(TUNDISH_VERSION));
  app.add_option("--coordinator", options.coordinator,
                 "HOST:PORT of tundishd; also TUNDISH_COORDINATOR")
      ->capture_default_str();
  app.add_option("--node", options.node, "Name of this host, unique in the cluster")
      ->capture_default_str();
  app.add_option("--devices", options.devices, "KIND:COUNT to offer, e.g. cpu:4")
      ->capture_default_str();
  app.add_flag("--assume-devices", options.assume_devices,
               "Offer devices without looking for them, to try placement");
  app.add_option("--topology", options.topology_file,
                 "Topology file that says how the devices are linked");
  app.add_option("--state-dir", options.state_dir, "Folder for sockets, records and rank logs")
      ->capture_default_str();
  app.add_option("--rank-binary", options.rank_binary, "Program started for each rank")
      ->capture_default_str();
  app.add_option("--http", options.http_address, "HOST:PORT of /metrics and /healthz")
      ->capture_default_str();
  app.add_option("--data-address", options.data_address,
                 "IPv4 address at which other hosts reach this host's ranks")
      ->capture_default_str();
  app.add_option("--log-level", options.log_level, "trace, debug, info, warning or error")
      ->capture_default_str();
  double check_limit_seconds = std::chrono::duration<double>(options.check_limit).count();
  app.add_option("--data-check-limit", check_limit_seconds, "Seconds a data check may take")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86'400.0));
  CLI::App* check_data =
      app.add_subcommand("check-data", "Check the data of the JobSpec message on standard input");
  int threads = Threads();
  check_data->add_option("--threads", threads, "Threads that decode images")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (check_data->parsed()) return tundish::agent::RunCheckDataCommand(threads);
  options.check_limit = std::chrono::milliseconds(static_cast<int64_t>(check_limit_seconds * 1000));
  return Serve(options);
}
