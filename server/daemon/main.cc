#include <cstdio>

#include <fmt/format.h>

#include "runtime/base/logging.h"
#include "server/daemon/daemon.h"
#include "server/daemon/options.h"

namespace {

/// 2: the command line is wrong; 4: it is right and cannot be done.
int Refuse(const absl::Status& status) {
  fmt::print(stderr, "tundishd: {}\n", std::string(status.message()));
  return absl::IsInvalidArgument(status) ? 2 : 4;
}

}  // namespace

int main(int argc, char** argv) {
  const tundish::daemon::ParsedOptions parsed = tundish::daemon::ParseOptions(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  if (absl::Status ready = tundish::InitLogging("tundishd", parsed.options.log_level);
      !ready.ok()) {
    return Refuse(ready);
  }
  const absl::Status ran = tundish::daemon::Run(parsed.options);
  return ran.ok() ? 0 : Refuse(ran);
}
