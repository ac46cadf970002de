#include "client/local/daemon.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

namespace tundish::client {
namespace {

// glibc 2.36 declares these, but its header clashes with <linux/wait.h> users; the calls are plain.
int PidfdOpen(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

/// Clock ticks since boot at which `pid` started (field 22 of /proc/PID/stat); 0 if it is gone.
uint64_t StartTimeOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  // The second field is the program's name in brackets and may hold anything.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22 && fields >> field; ++number) {
    if (number == 22) return std::strtoull(field.c_str(), nullptr, 10);
  }
  return 0;
}

absl::Status SystemError(std::string_view what, int error) {
  const std::string text = fmt::format("{}: {}", what, std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::FailedPreconditionError(text);
}

/// posix_spawn's attribute and action lists, freed together.
struct SpawnPlan {
  SpawnPlan() {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

}  // namespace

Daemon::Daemon(pid_t pid, int pidfd, uint64_t start_time, std::vector<std::string> arguments)
    : pid_(pid), pidfd_(pidfd), start_time_(start_time), arguments_(std::move(arguments)) {}

Daemon::Daemon(Daemon&& other) noexcept
    : pid_(other.pid_),
      pidfd_(std::exchange(other.pidfd_, -1)),
      start_time_(other.start_time_),
      arguments_(std::move(other.arguments_)) {}

Daemon& Daemon::operator=(Daemon&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(start_time_, other.start_time_);
  std::swap(arguments_, other.arguments_);
  return *this;
}

Daemon::~Daemon() {
  if (pidfd_ >= 0) close(pidfd_);
}

absl::StatusOr<Daemon> Daemon::Start(const std::vector<std::string>& arguments,
                                     const std::string& log_path) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return SystemError(log_path, errno);
  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&plan.actions, log, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&plan.actions, log, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);
  posix_spawnattr_setflags(&plan.attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, argv[0], &plan.actions, &plan.attributes, argv.data(), environ);
  close(log);
  if (error != 0) return SystemError(fmt::format("cannot start {}", arguments[0]), error);
  // The child is not reaped before its pidfd is open, so the pid is still its own.
  const int pidfd = PidfdOpen(pid);
  if (pidfd < 0) {
    const int reason = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return SystemError("pidfd_open", reason);
  }
  return Daemon(pid, pidfd, StartTimeOf(pid), arguments);
}

std::optional<Daemon> Daemon::Find(const std::string& record_path) {
  std::ifstream file(record_path);
  pid_t pid = 0;
  uint64_t start_time = 0;
  if (!(file >> pid >> start_time) || pid <= 1 || start_time == 0) return std::nullopt;
  std::vector<std::string> arguments;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) arguments.push_back(line);
  const int pidfd = PidfdOpen(pid);
  if (pidfd < 0) return std::nullopt;
  // Asked after the pidfd was opened: it refers to the process whose start time this is.
  Daemon daemon(pid, pidfd, start_time, std::move(arguments));
  if (StartTimeOf(pid) != start_time || daemon.WaitForExit(std::chrono::milliseconds(0))) {
    return std::nullopt;
  }
  return daemon;
}

absl::Status Daemon::WriteRecord(const std::string& record_path) const {
  const std::string temporary = record_path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError(temporary, errno);
  std::string text = fmt::format("{} {}\n", pid_, start_time_);
  for (const std::string& argument : arguments_) text += argument + "\n";
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  if (!written) return SystemError(temporary, error);
  if (rename(temporary.c_str(), record_path.c_str()) != 0) return SystemError(record_path, errno);
  return absl::OkStatus();
}

void Daemon::Signal(int number) const {
  syscall(SYS_pidfd_send_signal, pidfd_, number, nullptr, 0);
}

bool Daemon::WaitForExit(std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ended{.fd = pidfd_, .events = POLLIN, .revents = 0};
    const int ready = poll(&ended, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready > 0) {
      // A child of ours leaves the process table; for any other process this fails and is not
      // needed.
      waitpid(pid_, nullptr, WNOHANG);
      return true;
    }
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool StopDaemon(const Daemon& daemon, int number, std::chrono::milliseconds grace) {
  daemon.Signal(number);
  if (daemon.WaitForExit(grace)) return true;
  daemon.Signal(SIGKILL);
  daemon.WaitForExit(std::chrono::seconds(10));
  return false;
}

}  // namespace tundish::client
