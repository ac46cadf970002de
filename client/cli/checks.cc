#include "client/cli/checks.h"

namespace tundish::client {

std::string CheckNotEmpty(const std::string& value) {
  return value.empty() ? "the value is empty; expected at least one character" : "";
}

}  // namespace tundish::client
