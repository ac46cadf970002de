#include "client/local/local_cluster.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <vector>

#include <absl/strings/ascii.h>
#include <climits>
#include <fmt/core.h>

#include "client/link/coordinator.h"
#include "client/local/daemon.h"
#include "client/local/left_ranks.h"
#include "client/local/network.h"

namespace tundish::client {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr milliseconds kAgentStopLimit{30'000};
constexpr milliseconds kCoordinatorStopLimit{15'000};

std::string RecordPath(const std::string& state_dir, const std::string& name) {
  return state_dir + "/" + name + ".pid";
}
std::string LogPath(const std::string& state_dir, const std::string& name) {
  return state_dir + "/" + name + ".log";
}

/// One `up` or `down` at a time per state directory.
class StateDirLock {
 public:
  static absl::StatusOr<StateDirLock> Take(const std::string& state_dir) {
    std::error_code error;
    fs::create_directories(state_dir, error);
    const std::string path = state_dir + "/lock";
    const int fd = error ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
      return absl::FailedPreconditionError(
          fmt::format("--state-dir {}: {}", state_dir,
                      error ? error.message() : std::string(std::strerror(errno))));
    }
    fs::permissions(state_dir, fs::perms::owner_all, error);
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return StateDirLock(fd);
  }
  StateDirLock(StateDirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StateDirLock& operator=(StateDirLock&&) = delete;
  ~StateDirLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit StateDirLock(int fd) : fd_(fd) {}
  int fd_;
};

/// SIGINT and SIGTERM as a descriptor, so that they end a wait instead of the process.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~StopSignals() {
    // What came meanwhile has been acted on.
    signalfd_siginfo seen;
    while (read(fd_, &seen, sizeof seen) > 0) {
    }
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int fd() const { return fd_; }

 private:
  sigset_t signals_, before_;
  int fd_;
};

/// The host's name in the form node names have: 1 to 63 of [a-z0-9.-].
std::string NodeName() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  std::string name(host, strnlen(host, 63));
  for (char& c : name) {
    c = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  }
  return name.empty() ? "localhost" : name;
}

/// The last line with anything on it that was written to `path` behind `offset`, but not the hint
/// that a usage error ends with.
std::string LastLine(const std::string& path, uintmax_t offset) {
  std::ifstream file(path);
  file.seekg(0, std::ios::end);
  const auto end = static_cast<uintmax_t>(std::max<std::streamoff>(0, file.tellg()));
  constexpr uintmax_t kMost = 1 << 14;
  offset = std::min(std::max(offset, end > kMost ? end - kMost : 0), end);
  file.seekg(static_cast<std::streamoff>(offset));
  std::string line, last;
  while (std::getline(file, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!line.starts_with("Run with --help")) last = line;
  }
  return last;
}

class Starter {
 public:
  explicit Starter(const LocalClusterOptions& options)
      : options_(options), deadline_(std::chrono::steady_clock::now() + options.start_limit) {}

  absl::StatusOr<std::string> Run() {
    absl::Status status = StartCoordinator();
    if (status.ok()) status = StartAgent();
    if (status.ok()) return Summary();
    StopStarted();
    return status;
  }

 private:
  struct Slot {
    std::string name;
    std::optional<Daemon> daemon = std::nullopt;
    bool started_here = false;
    uintmax_t log_offset = 0;
  };

  std::vector<std::string> CoordinatorArguments() const {
    return {options_.binary_dir + "/tundishd",
            "--listen",
            options_.listen,
            "--http",
            options_.http,
            "--state-dir",
            options_.state_dir + "/tundishd",
            "--artifact-root",
            options_.state_dir + "/artifacts",
            "--log-level",
            options_.log_level};
  }
  std::vector<std::string> AgentArguments() const {
    return {options_.binary_dir + "/tundish-agent",
            "--coordinator",
            options_.listen,
            "--node",
            NodeName(),
            "--devices",
            options_.devices,
            "--state-dir",
            options_.state_dir + "/agent",
            "--rank-binary",
            options_.binary_dir + "/tundish-rank",
            "--http",
            options_.agent_http,
            "--log-level",
            options_.log_level};
  }

  absl::Status StartCoordinator() {
    const std::vector<std::pair<std::string, std::string>> ports = {{options_.listen, "--listen"},
                                                                    {options_.http, "--http"}};
    if (absl::Status up = Ensure(coordinator_, CoordinatorArguments(), ports); !up.ok()) return up;
    return Await("tundishd to answer", [this] { return NodeState().has_value(); });
  }

  absl::Status StartAgent() {
    if (absl::Status up = Ensure(agent_, AgentArguments(), {{options_.agent_http, "--agent-http"}});
        !up.ok()) {
      return up;
    }
    if (absl::Status ready = Await("the node to be ready",
                                   [this] {
                                     const std::string state = NodeState().value_or("");
                                     return state == "ready" || state == "drained";
                                   });
        !ready.ok()) {
      return ready;
    }
    return Await(fmt::format("http://{}/readyz to say 200", options_.http), [this] {
      return HttpStatus(options_.http, "/readyz", milliseconds(1000)) == 200;
    });
  }

  /// Makes sure that `slot`'s daemon runs with `arguments`.
  absl::Status Ensure(Slot& slot, const std::vector<std::string>& arguments,
                      const std::vector<std::pair<std::string, std::string>>& ports) {
    const std::string record = RecordPath(options_.state_dir, slot.name);
    slot.daemon = Daemon::Find(record);
    if (slot.daemon) {
      if (slot.daemon->arguments() == arguments) return absl::OkStatus();
      return absl::FailedPreconditionError(
          fmt::format("{} already runs (pid {}) with other options: {}; stop it with `tundish down "
                      "--state-dir {}` first",
                      slot.name, slot.daemon->pid(), Differing(slot.daemon->arguments(), arguments),
                      options_.state_dir));
    }
    for (const auto& [address, flag] : ports) {
      if (absl::Status free = CheckCanListen(address, flag); !free.ok()) return free;
    }
    const std::string log = LogPath(options_.state_dir, slot.name);
    std::error_code missing;
    const uintmax_t size = fs::file_size(log, missing);
    slot.log_offset = missing ? 0 : size;
    absl::StatusOr<Daemon> started = Daemon::Start(arguments, log);
    if (!started.ok()) return started.status();
    slot.daemon = *std::move(started);
    slot.started_here = true;
    return slot.daemon->WriteRecord(record);
  }

  /// The first option of a running daemon that is not as wanted, "--devices cpu:2".
  static std::string Differing(const std::vector<std::string>& running,
                               const std::vector<std::string>& wanted) {
    for (size_t i = 1; i < running.size(); ++i) {
      if (i >= wanted.size() || running[i] != wanted[i]) return running[i - 1] + " " + running[i];
    }
    return "fewer of them";
  }

  /// Waits until `condition` holds. Neither a registration nor /readyz can be waited for, so they
  /// are asked for again and again; the end of a daemon or a signal is noticed at once.
  absl::Status Await(const std::string& what, const std::function<bool()>& condition) {
    constexpr milliseconds kAskAgain{50};
    for (;;) {
      for (Slot* slot : {&coordinator_, &agent_}) {
        if (slot->daemon && slot->daemon->WaitForExit(milliseconds(0))) return Ended(*slot);
      }
      if (condition()) return absl::OkStatus();
      if (std::chrono::steady_clock::now() >= deadline_) {
        return absl::FailedPreconditionError(
            fmt::format("waited {} s in vain for {}; logs are in {}",
                        options_.start_limit.count() / 1000, what, options_.state_dir));
      }
      std::vector<pollfd> events = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
      for (const Slot* slot : {&coordinator_, &agent_}) {
        if (slot->daemon)
          events.push_back({.fd = slot->daemon->pidfd(), .events = POLLIN, .revents = 0});
      }
      poll(events.data(), events.size(), static_cast<int>(kAskAgain.count()));
      if (events[0].revents != 0)
        return absl::AbortedError("interrupted; nothing was left running");
    }
  }

  absl::Status Ended(const Slot& slot) const {
    const std::string log = LogPath(options_.state_dir, slot.name);
    const std::string line = LastLine(log, slot.log_offset);
    return absl::FailedPreconditionError(fmt::format("{} ended: {} (log: {})", slot.name,
                                                     line.empty() ? "it said nothing" : line, log));
  }

  /// State of our node; nothing if the coordinator does not answer, empty if it does not know it.
  std::optional<std::string> NodeState() {
    // Made late: gRPC's threads must find SIGINT and SIGTERM blocked.
    if (!link_) link_.emplace(options_.listen);
    // Waiting drives the connection on; a call that fails at once leaves it to gRPC's slow
    // background poll.
    if (!link_->channel().WaitForConnected(std::chrono::system_clock::now() + milliseconds(200))) {
      return std::nullopt;
    }
    const absl::StatusOr<v1::ListNodesResponse> response = link_->Call(
        &v1::ClusterService::StubInterface::ListNodes, v1::ListNodesRequest(), milliseconds(1000));
    if (!response.ok()) return std::nullopt;
    for (const v1::NodeStatus& node : response->nodes()) {
      if (node.node() == NodeName()) return node.state();
    }
    return "";
  }

  void StopStarted() {
    for (auto [slot, signal] : {std::pair{&agent_, SIGINT}, std::pair{&coordinator_, SIGTERM}}) {
      if (!slot->daemon || !slot->started_here) continue;
      StopDaemon(*slot->daemon, signal, kCoordinatorStopLimit);
      std::error_code ignored;
      fs::remove(RecordPath(options_.state_dir, slot->name), ignored);
    }
  }

  std::string Summary() const {
    const auto word = [](const Slot& slot) {
      return slot.started_here ? "started" : "already runs";
    };
    return fmt::format(
        "tundishd       {}, pid {}, gRPC {}, http://{}/, log {}\n"
        "tundish-agent  {}, pid {}, node {} with {}, http://{}/metrics, log {}\n"
        "artifacts      {}\n",
        word(coordinator_), coordinator_.daemon->pid(), options_.listen, options_.http,
        LogPath(options_.state_dir, coordinator_.name), word(agent_), agent_.daemon->pid(),
        NodeName(), options_.devices, options_.agent_http, LogPath(options_.state_dir, agent_.name),
        options_.state_dir + "/artifacts");
  }

  const LocalClusterOptions& options_;
  const std::chrono::steady_clock::time_point deadline_;
  StopSignals signals_;
  std::optional<Coordinator> link_;
  Slot coordinator_{.name = "tundishd"};
  Slot agent_{.name = "tundish-agent"};
};

}  // namespace

absl::StatusOr<std::string> DefaultStateDir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return std::string(state) + "/tundish";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.local/state/tundish";
  }
  return absl::FailedPreconditionError("neither XDG_STATE_HOME nor HOME is set; give --state-dir");
}

absl::StatusOr<std::string> StartLocalCluster(const LocalClusterOptions& options) {
  absl::StatusOr<StateDirLock> lock = StateDirLock::Take(options.state_dir);
  if (!lock.ok()) return lock.status();
  return Starter(options).Run();
}

absl::StatusOr<std::string> StopLocalCluster(const std::string& state_dir) {
  if (!fs::exists(state_dir)) return fmt::format("nothing runs: {} does not exist\n", state_dir);
  absl::StatusOr<StateDirLock> lock = StateDirLock::Take(state_dir);
  if (!lock.ok()) return lock.status();
  std::string text;
  static constexpr std::string_view kAgent = "tundish-agent";
  struct Target {
    std::string_view name;
    int signal;
    milliseconds limit;
  };
  // The agent first: SIGINT makes it stop its ranks, which needs no coordinator.
  for (const Target& target : {Target{kAgent, SIGINT, kAgentStopLimit},
                               Target{"tundishd", SIGTERM, kCoordinatorStopLimit}}) {
    const std::string record = RecordPath(state_dir, std::string(target.name));
    if (const std::optional<Daemon> daemon = Daemon::Find(record)) {
      const bool by_itself = StopDaemon(*daemon, target.signal, target.limit);
      text +=
          fmt::format("{:<14} {} (pid {})\n", target.name,
                      by_itself ? "stopped" : "did not stop in time and was killed", daemon->pid());
    }
    std::error_code ignored;
    fs::remove(record, ignored);
    // An agent that was killed, now or before, leaves its ranks to the next one.
    if (target.name == kAgent) text += KillLeftRanks(state_dir + "/agent");
  }
  return text.empty() ? fmt::format("nothing runs with state in {}\n", state_dir) : text;
}

}  // namespace tundish::client
