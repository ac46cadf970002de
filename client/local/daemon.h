#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "runtime/process/identity.h"

namespace tundish::client {

/// A running daemon, held by its pidfd, so that no recycled pid is ever waited for or signalled.
/// Movable; closes the pidfd, leaves the process alone. Not thread-safe.
class Daemon {
 public:
  /// Starts `arguments[0]` in a session of its own, standard output and error appended to
  /// `log_path`, standard input empty, no other descriptor inherited, signals as by default.
  /// Errors: InvalidArgument naming the program or the log and why.
  static absl::StatusOr<Daemon> Start(const std::vector<std::string>& arguments,
                                      const std::string& log_path);

  /// The daemon that `record_path` tells of, if it still runs: the process with that identity.
  /// Nothing if there is no record, a torn one, or the process is gone.
  static std::optional<Daemon> Find(const std::string& record_path);

  /// The process with that identity, nothing if it is gone. `arguments` are only remembered.
  static std::optional<Daemon> Hold(const process::Identity& identity,
                                    std::vector<std::string> arguments = {});

  Daemon(Daemon&& other) noexcept;
  Daemon& operator=(Daemon&& other) noexcept;
  ~Daemon();

  /// Writes the record (atomically, mode 0600). Errors: FailedPrecondition naming the path.
  absl::Status WriteRecord(const std::string& record_path) const;

  /// Signals the process. No error if it is gone.
  void Signal(int number) const;

  /// True as soon as the process has ended; waits for that up to `limit`.
  bool WaitForExit(std::chrono::milliseconds limit) const;

  pid_t pid() const { return identity_.pid; }
  int pidfd() const { return pidfd_; }
  /// As given to Start().
  const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  Daemon(process::Identity identity, int pidfd, std::vector<std::string> arguments);

  process::Identity identity_;
  int pidfd_;
  std::vector<std::string> arguments_;
};

/// Signals `daemon` with `number`, waits up to `grace`, then kills it. True if it ended by itself.
bool StopDaemon(const Daemon& daemon, int number, std::chrono::milliseconds grace);

}  // namespace tundish::client
