#include "client/local/daemon.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>
extern "C" {  // glibc 2.36's header lacks it.
#include <sys/pidfd.h>
}

#include "runtime/process/spawn.h"

namespace tundish::client {
namespace {

absl::Status SystemError(std::string_view what, int error) {
  return absl::FailedPreconditionError(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace

Daemon::Daemon(process::Identity identity, int pidfd, std::vector<std::string> arguments)
    : identity_(std::move(identity)), pidfd_(pidfd), arguments_(std::move(arguments)) {}

Daemon::Daemon(Daemon&& other) noexcept
    : identity_(std::move(other.identity_)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      arguments_(std::move(other.arguments_)) {}

Daemon& Daemon::operator=(Daemon&& other) noexcept {
  std::swap(identity_, other.identity_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(arguments_, other.arguments_);
  return *this;
}

Daemon::~Daemon() {
  if (pidfd_ >= 0) close(pidfd_);
}

absl::StatusOr<Daemon> Daemon::Start(const std::vector<std::string>& arguments,
                                     const std::string& log_path) {
  const absl::StatusOr<pid_t> pid =
      process::Spawn({.program = arguments[0],
                      .arguments = {arguments.begin() + 1, arguments.end()},
                      .environment = process::InheritedEnvironment({"*"}),
                      .stdout_file = log_path,
                      .stderr_file = log_path});
  if (!pid.ok()) return pid.status();
  // The child is not reaped yet, so the pid is still its own.
  const int pidfd = pidfd_open(*pid, 0);
  if (pidfd < 0) {
    const int error = errno;
    kill(*pid, SIGKILL);
    waitpid(*pid, nullptr, 0);
    return SystemError("pidfd_open", error);
  }
  // One that has ended already has no identity; WaitForExit() tells.
  const absl::StatusOr<process::Identity> identity = process::Identify(*pid);
  return Daemon(identity.ok() ? *identity : process::Identity{.pid = *pid}, pidfd, arguments);
}

std::optional<Daemon> Daemon::Find(const std::string& record_path) {
  std::ifstream file(record_path);
  process::Identity recorded;
  if (!(file >> recorded.pid >> recorded.start_ticks >> recorded.boot_id)) return std::nullopt;
  std::vector<std::string> arguments;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) arguments.push_back(line);
  return Hold(recorded, std::move(arguments));
}

std::optional<Daemon> Daemon::Hold(const process::Identity& identity,
                                   std::vector<std::string> arguments) {
  if (identity.pid <= 1) return std::nullopt;
  const int pidfd = pidfd_open(identity.pid, 0);
  if (pidfd < 0) return std::nullopt;
  Daemon daemon(identity, pidfd, std::move(arguments));
  // Asked after the pidfd was opened: what is compared is what is held.
  const absl::StatusOr<process::Identity> running = process::Identify(identity.pid);
  if (!running.ok() || *running != identity) return std::nullopt;
  return daemon;
}

absl::Status Daemon::WriteRecord(const std::string& record_path) const {
  const std::string temporary = record_path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError(temporary, errno);
  std::string text =
      fmt::format("{} {} {}\n", identity_.pid, identity_.start_ticks, identity_.boot_id);
  for (const std::string& argument : arguments_) text += argument + "\n";
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  if (!written) return SystemError(temporary, error);
  if (rename(temporary.c_str(), record_path.c_str()) != 0) return SystemError(record_path, errno);
  return absl::OkStatus();
}

void Daemon::Signal(int number) const {
  pidfd_send_signal(pidfd_, number, nullptr, 0);
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
      waitpid(identity_.pid, nullptr, WNOHANG);
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
