#pragma once

#include <absl/status/status.h>

#include "server/daemon/options.h"

namespace tundish::daemon {

/// Runs tundishd until SIGTERM or SIGINT: opens the state, takes up its jobs, listens. An orderly
/// stop leaves jobs and ranks alone. Call once per process, before other threads start. Errors:
/// Unavailable or FailedPrecondition naming the address that cannot be bound, the state another
/// coordinator holds, or the folder that cannot be used; whatever store::Store::Open says.
absl::Status Run(const Options& options);

}  // namespace tundish::daemon
