#include "runtime/base/logging.h"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace tundish {

absl::Status InitLogging(const std::string& program, const std::string& level) {
  constexpr std::array<std::string_view, 5> kLevels = {"trace", "debug", "info", "warning", "error"};
  bool known = false;
  for (const std::string_view name : kLevels) known = known || name == level;
  if (!known) {
    return absl::InvalidArgumentError(
        fmt::format("log level '{}' is not one of {}", level, fmt::join(kLevels, ", ")));
  }
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace tundish
