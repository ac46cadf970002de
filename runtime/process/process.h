#pragma once

#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/asio/any_io_executor.hpp>

#include "runtime/process/identity.h"
#include "runtime/process/spawn.h"

namespace tundish::process {

/// How a process ended.
struct Exit {
  /// False for an adopted process: only a parent is told.
  bool known = false;
  int code = 0;
  /// > 0: it was ended by this signal, and `code` means nothing.
  int signal = 0;
};

/// One running process, held by a pidfd: a signal never reaches a stranger that got the pid later.
/// Lives on one strand. Destroying it neither ends the process nor reaps it.
class Process {
 public:
  using OnExit = std::function<void(const Exit&)>;

  /// Spawns `command`. `on_exit` runs once, on `executor`, after the process ended (and was
  /// reaped), never after this object is gone. Errors: those of Spawn(), Internal if there is no
  /// pidfd.
  static absl::StatusOr<std::unique_ptr<Process>> Start(boost::asio::any_io_executor executor,
                                                        const Command& command, OnExit on_exit);

  /// Takes over a process that another parent started. If it is a child of ours, its exit is known.
  /// Errors: NotFound if it has ended (or its pid is another process's by now); Internal if that
  /// cannot be told, so that it may well be running.
  static absl::StatusOr<std::unique_ptr<Process>> Adopt(boost::asio::any_io_executor executor,
                                                        const Identity& identity, OnExit on_exit);

  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const Identity& identity() const { return identity_; }

  /// Sends `signal`. Errors: NotFound if it has ended.
  absl::Status Signal(int signal);

 private:
  struct Watch;

  Process(Identity identity, std::shared_ptr<Watch> watch);

  static absl::StatusOr<std::shared_ptr<Watch>> Open(boost::asio::any_io_executor executor,
                                                     pid_t pid, OnExit on_exit);

  Identity identity_;
  std::shared_ptr<Watch> watch_;  // Shared with the wait in flight.
};

}  // namespace tundish::process
