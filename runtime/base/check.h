#pragma once

#include <string_view>

namespace tundish {

/// Prints the broken invariant and aborts. Not for bad input: that is an absl::Status.
[[noreturn]] void CheckFailed(std::string_view condition, std::string_view file, int line);

}  // namespace tundish

/// Ends the process when an invariant of our own does not hold. On in every build.
#define TUNDISH_CHECK(condition)                                        \
  do {                                                                  \
    if (!(condition)) ::tundish::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
