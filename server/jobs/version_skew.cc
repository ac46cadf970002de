#include "server/jobs/version_skew.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace tundish::jobs {
namespace {

struct Version {
  unsigned major = 0;
  unsigned minor = 0;
};

std::optional<Version> Parse(std::string_view text) {
  unsigned parts[3] = {};
  const char* next = text.data();
  const char* end = text.data() + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [stop, error] = std::from_chars(next, end, parts[i]);
    if (error != std::errc()) return std::nullopt;
    const bool last = i == 2;
    if (last ? stop != end : stop == end || *stop != '.') return std::nullopt;
    next = last ? stop : stop + 1;
  }
  return Version{parts[0], parts[1]};
}

}  // namespace

absl::Status CheckVersionSkew(std::string_view own, std::string_view agent) {
  const std::optional<Version> mine = Parse(own);
  const std::optional<Version> its = Parse(agent);
  if (!mine || !its) {
    return absl::InvalidArgumentError(fmt::format(
        "version '{:.64}' must be MAJOR.MINOR.PATCH, as the coordinator's {}", agent, own));
  }
  if (mine->major == its->major && (its->minor == mine->minor || its->minor + 1 == mine->minor)) {
    return absl::OkStatus();
  }
  const bool agent_newer =
      its->major > mine->major || (its->major == mine->major && its->minor > mine->minor);
  return absl::FailedPreconditionError(
      fmt::format("the agent is version {:.64}, the coordinator {}: they do not work together; "
                  "upgrade {} (an agent may be one minor version older)",
                  agent, own, agent_newer ? "tundishd" : "tundish-agent"));
}

}  // namespace tundish::jobs
