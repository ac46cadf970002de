#include "runtime/process/identity.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

namespace tundish::process {

absl::StatusOr<Identity> Identify(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  // Field 2 is the program's name in parentheses and may hold spaces and parentheses itself.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) {
    return absl::NotFoundError(fmt::format("no process has pid {}", pid));
  }
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  fields >> state;  // Field 3.
  if (state == "Z" || state == "X") {
    return absl::NotFoundError(fmt::format("process {} has ended", pid));
  }
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  Identity identity{.pid = pid};
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!(fields >> identity.start_ticks) || !(boot >> identity.boot_id)) {
    return absl::InternalError(fmt::format("cannot read /proc for process {}", pid));
  }
  return identity;
}

}  // namespace tundish::process
