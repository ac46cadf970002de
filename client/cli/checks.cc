#include "client/cli/checks.h"

#include <regex>

#include <fmt/core.h>

namespace tundish::client {

std::string CheckHostPort(const std::string& address) {
  static const std::regex kHostPort(R"((.+):([0-9]{1,5}))");
  std::smatch match;
  if (std::regex_match(address, match, kHostPort)) {
    const int port = std::stoi(match[2]);
    if (port >= 1 && port <= 65535) return "";
  }
  return fmt::format(
      "\"{}\" is not an address; expected HOST:PORT with a port from 1 to 65535, such as "
      "127.0.0.1:7400",
      address);
}

std::string CheckNotEmpty(const std::string& value) {
  return value.empty() ? "the value is empty; expected at least one character" : "";
}

}  // namespace tundish::client
