#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tundish {

void CheckFailed(std::string_view condition, std::string_view file, int line) {
  std::fprintf(stderr, "invariant broken: %.*s at %.*s:%d\n", static_cast<int>(condition.size()),
               condition.data(), static_cast<int>(file.size()), file.data(), line);
  std::abort();
}

}  // namespace tundish
