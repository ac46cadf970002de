#include "runtime/process/identity.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <absl/cleanup/cleanup.h>
#include <fmt/format.h>

namespace tundish::process {
namespace {

/// Errors: NotFound if the process is gone, PermissionDenied if it is out of bounds, else Internal.
absl::StatusOr<std::string> ReadProcFile(const std::string& path) {
  const auto failed = [&path](int error) {
    const std::string message =
        fmt::format("cannot read {}: {}", path, std::generic_category().message(error));
    if (error == ENOENT || error == ESRCH) return absl::NotFoundError(message);
    if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
    return absl::InternalError(message);
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed(errno);
  const absl::Cleanup closed = [file] { close(file); };
  std::string content;
  char block[4096];
  for (;;) {
    const ssize_t got = read(file, block, sizeof(block));
    if (got < 0) return failed(errno);
    if (got == 0) return content;
    content.append(block, static_cast<size_t>(got));
  }
}

/// The arguments of a command line of /proc, argv[0] left out.
std::vector<std::string> SplitArguments(std::string_view line) {
  std::vector<std::string> arguments;
  while (!line.empty()) {
    const size_t end = line.find('\0');
    arguments.emplace_back(line.substr(0, end));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

/// Spawn() gives each process a session of its own, which its forks do not lead.
bool LeadsSessionOfThisUser(const std::string& folder, pid_t pid) {
  struct stat owner {};
  return stat(folder.c_str(), &owner) == 0 && owner.st_uid == geteuid() && getsid(pid) == pid;
}

}  // namespace

absl::StatusOr<Identity> Identify(pid_t pid) {
  const auto stat = ReadProcFile(fmt::format("/proc/{}/stat", pid));
  if (absl::IsNotFound(stat.status())) {
    return absl::NotFoundError(fmt::format("no process has pid {}", pid));
  }
  if (!stat.ok()) return absl::InternalError(stat.status().message());
  // Field 2 is the program's name in parentheses and may hold spaces and parentheses itself.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) {
    return absl::InternalError(fmt::format("cannot make sense of /proc/{}/stat", pid));
  }
  std::istringstream fields(stat->substr(name_end + 1));
  std::string state;
  fields >> state;  // Field 3.
  if (state == "Z" || state == "X") {
    return absl::NotFoundError(fmt::format("process {} has ended", pid));
  }
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  Identity identity{.pid = pid};
  const auto boot = ReadProcFile("/proc/sys/kernel/random/boot_id");
  if (!boot.ok() || !(fields >> identity.start_ticks)) {
    return absl::InternalError(fmt::format("cannot read /proc for process {}", pid));
  }
  identity.boot_id = boot->substr(0, boot->find('\n'));
  return identity;
}

absl::StatusOr<std::optional<Found>> FindSpawned(const std::vector<std::string>& first) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string folder = entry->path().string();
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong != std::errc() || end != name.data() + name.size()) continue;
    if (!LeadsSessionOfThisUser(folder, pid)) continue;
    // First who it is, then what it was started with, then whether it still is the same one.
    const auto before = Identify(pid);
    const auto line = ReadProcFile(folder + "/cmdline");
    for (const absl::Status& status : {before.status(), line.status()}) {
      if (absl::IsInternal(status)) return status;
    }
    if (!before.ok() || !line.ok()) continue;
    Found found{.identity = *before, .arguments = SplitArguments(*line)};
    if (found.arguments.size() < first.size() ||
        !std::equal(first.begin(), first.end(), found.arguments.begin())) {
      continue;
    }
    const auto after = Identify(pid);
    if (absl::IsInternal(after.status())) return after.status();
    if (after.ok() && *after == found.identity) return found;
  }
  if (error) return absl::InternalError(fmt::format("cannot read /proc: {}", error.message()));
  return std::nullopt;
}

}  // namespace tundish::process
