#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::process {

/// Names one process for ever, where a pid alone is used again.
struct Identity {
  pid_t pid = 0;
  /// Start in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)).
  uint64_t start_ticks = 0;
  /// /proc/sys/kernel/random/boot_id: ticks start over with it.
  std::string boot_id;

  bool operator==(const Identity&) const = default;
};

/// The process that has `pid` now. Errors: NotFound if there is none or it has ended and only waits
/// to be reaped; Internal if /proc cannot be read (too many open files, for one).
absl::StatusOr<Identity> Identify(pid_t pid);

/// A running process and what it was started with.
struct Found {
  Identity identity;
  /// What follows argv[0].
  std::vector<std::string> arguments;
};

/// The process of this user that Spawn() started with arguments that begin with `first` (not
/// empty), if it runs; of several, any. Errors: Internal if /proc cannot be read.
absl::StatusOr<std::optional<Found>> FindSpawned(const std::vector<std::string>& first);

}  // namespace tundish::process
