#include "runtime/process/process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <fmt/format.h>

extern "C" {  // glibc 2.36's header forgets to say so.
#include <sys/pidfd.h>
}

namespace tundish::process {

namespace asio = boost::asio;

struct Process::Watch : std::enable_shared_from_this<Process::Watch> {
  Watch(asio::any_io_executor executor, int pidfd, OnExit on_exit)
      : pidfd(executor, pidfd), on_exit(std::move(on_exit)) {}

  void Wait() {
    pidfd.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](boost::system::error_code error) {
                       if (!error) self->Report();
                     });
  }

  void Report() {
    if (!on_exit) return;
    Exit exit;
    siginfo_t info{};
    const auto id = static_cast<id_t>(pidfd.native_handle());
    if (waitid(P_PIDFD, id, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      exit.known = true;
      if (info.si_code == CLD_EXITED) {
        exit.code = info.si_status;
      } else {
        exit.signal = info.si_status;
      }
    }
    std::exchange(on_exit, nullptr)(exit);
  }

  asio::posix::stream_descriptor pidfd;
  OnExit on_exit;
};

absl::StatusOr<std::shared_ptr<Process::Watch>> Process::Open(asio::any_io_executor executor,
                                                              pid_t pid, OnExit on_exit) {
  const int pidfd = pidfd_open(pid, 0);  // Closed on exec by definition.
  if (pidfd < 0) {
    const int error = errno;
    const std::string message =
        fmt::format("no pidfd of process {}: {}", pid, std::generic_category().message(error));
    return error == ESRCH ? absl::NotFoundError(message) : absl::InternalError(message);
  }
  return std::make_shared<Watch>(std::move(executor), pidfd, std::move(on_exit));
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(asio::any_io_executor executor,
                                                        const Command& command, OnExit on_exit) {
  const auto pid = Spawn(command);
  if (!pid.ok()) return pid.status();
  // The child is not reaped before Report(), so its pid is its own until then.
  auto watch = Open(std::move(executor), *pid, std::move(on_exit));
  if (!watch.ok()) {
    kill(*pid, SIGKILL);
    waitpid(*pid, nullptr, 0);
    return absl::InternalError(watch.status().message());
  }
  auto identity = Identify(*pid);
  if (!identity.ok()) identity = Identity{.pid = *pid};  // It has ended already.
  (*watch)->Wait();
  return std::unique_ptr<Process>(new Process(*std::move(identity), *std::move(watch)));
}

absl::StatusOr<std::unique_ptr<Process>> Process::Adopt(asio::any_io_executor executor,
                                                        const Identity& identity, OnExit on_exit) {
  // First the pidfd, then the comparison: what is compared is what is held.
  auto watch = Open(std::move(executor), identity.pid, std::move(on_exit));
  if (!watch.ok()) return watch.status();
  const auto found = Identify(identity.pid);
  if (!found.ok()) return found.status();
  if (*found != identity) {
    return absl::NotFoundError(
        fmt::format("process {} is another one than was recorded", identity.pid));
  }
  (*watch)->Wait();
  return std::unique_ptr<Process>(new Process(identity, *std::move(watch)));
}

Process::Process(Identity identity, std::shared_ptr<Watch> watch)
    : identity_(std::move(identity)), watch_(std::move(watch)) {}

Process::~Process() {
  watch_->on_exit = nullptr;
  boost::system::error_code ignored;
  watch_->pidfd.close(ignored);
}

absl::Status Process::Signal(int signal) {
  if (pidfd_send_signal(watch_->pidfd.native_handle(), signal, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(fmt::format("cannot send signal {} to process {}: {}", signal,
                                         identity_.pid, std::generic_category().message(errno)));
}

}  // namespace tundish::process
