#pragma once

#include <string>

namespace tundish::client {

// Checks of option values for CLI11: why the value cannot be used, empty if it can.

std::string CheckNotEmpty(const std::string& value);

}  // namespace tundish::client
