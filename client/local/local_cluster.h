#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tundish::client {

/// How `tundish up` runs a coordinator and one agent on this host.
struct LocalClusterOptions {
  /// Records, logs, state and artifacts lie in it.
  std::string state_dir;
  /// Folder of tundishd, tundish-agent and tundish-rank.
  std::string binary_dir;
  /// As the agent's --devices.
  std::string devices = "cpu:4";
  std::string listen = "127.0.0.1:7400";
  std::string http = "127.0.0.1:7401";
  std::string agent_http = "127.0.0.1:7402";
  std::string log_level = "info";
  std::chrono::milliseconds start_limit = std::chrono::seconds(60);
};

/// `${XDG_STATE_HOME:-~/.local/state}/tundish`.
/// Errors: FailedPrecondition if neither variable is set.
absl::StatusOr<std::string> DefaultStateDir();

/// Starts what does not run yet and returns once the coordinator answers, its /readyz says 200 and
/// the node is ready; the text says what runs where. A daemon that runs with the same options is
/// left as it is. On an error, or SIGINT or SIGTERM while it waits, everything this call started is
/// stopped again. Errors: FailedPrecondition (a port in use, other options than the running
/// cluster's, a daemon that ended, with its last line; not ready within `start_limit`), NotFound
/// (no such program). Call from a process without other threads.
absl::StatusOr<std::string> StartLocalCluster(const LocalClusterOptions& options);

/// Stops the agent (and with it the ranks), then the coordinator, and returns when both have ended;
/// one that does not within its limit is killed. Ranks that an agent left behind, because it was
/// killed, are killed too. The text says what was stopped. Nothing running is no error.
absl::StatusOr<std::string> StopLocalCluster(const std::string& state_dir);

}  // namespace tundish::client
