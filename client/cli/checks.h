#pragma once

#include <string>

namespace tundish::client {

// Checks of option values for CLI11: why the value cannot be used, empty if it can.

/// HOST:PORT with a port from 1 to 65535.
std::string CheckHostPort(const std::string& address);

std::string CheckNotEmpty(const std::string& value);

}  // namespace tundish::client
