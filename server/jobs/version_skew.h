#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace tundish::jobs {

/// Whether a coordinator of version `own` works with an agent of version `agent`
/// (MAJOR.MINOR.PATCH): of the same major version, and of the same minor version or the one before,
/// so that a cluster is upgraded coordinator first, host by host. Errors: FailedPrecondition naming
/// both versions and what to do; InvalidArgument for what is no version.
absl::Status CheckVersionSkew(std::string_view own, std::string_view agent);

}  // namespace tundish::jobs
