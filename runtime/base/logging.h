#pragma once

#include <string>

#include <absl/status/status.h>

namespace tundish {

/// Sends this process's spdlog lines to stderr as
/// `2026-12-01T12:00:00.123Z info tundishd event=job_submitted job=01J… …`.
/// Lines are `key=value`, identities first; state changes, not ticks.
/// `level`: trace, debug, info, warning, error. Errors: InvalidArgument for any other value.
/// Call once, before threads start.
absl::Status InitLogging(const std::string& program, const std::string& level);

}  // namespace tundish
