#include "runtime/process/spawn.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace tundish::process {
namespace {

constexpr const char* kNull = "/dev/null";

std::string Reason(int error) {
  return std::generic_category().message(error);
}

/// The C structures of posix_spawn, released together.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int Fill(const Command& command) {
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    const short flags = POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    int error = posix_spawnattr_setflags(&attributes_, flags);
    if (error == 0) error = posix_spawnattr_setsigmask(&attributes_, &none);
    if (error == 0) error = posix_spawnattr_setsigdefault(&attributes_, &all);
    if (error == 0) error = Open(0, command.stdin_file, O_RDONLY);
    if (error == 0) error = Open(1, command.stdout_file, O_WRONLY | O_CREAT | O_APPEND);
    if (error == 0) error = Open(2, command.stderr_file, O_WRONLY | O_CREAT | O_APPEND);
    if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    return error;
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  int Open(int descriptor, const std::string& file, int flags) {
    return posix_spawn_file_actions_addopen(&actions_, descriptor,
                                            file.empty() ? kNull : file.c_str(), flags, 0600);
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

/// posix_spawn says only that something failed; this says what.
absl::Status CheckFiles(const Command& command) {
  const auto refuse = [](const std::string& file, std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("cannot {} '{}': {}", what, file, Reason(errno)));
  };
  struct stat found {};
  if (stat(command.program.c_str(), &found) != 0) return refuse(command.program, "start");
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot start '{}': it is not a file", command.program));
  }
  if (access(command.program.c_str(), X_OK) != 0) return refuse(command.program, "start");
  if (!command.stdin_file.empty() && access(command.stdin_file.c_str(), R_OK) != 0) {
    return refuse(command.stdin_file, "read");
  }
  for (const std::string* file : {&command.stdout_file, &command.stderr_file}) {
    if (file->empty()) continue;
    const int descriptor = open(file->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor < 0) return refuse(*file, "write");
    close(descriptor);
  }
  return absl::OkStatus();
}

std::vector<char*> Pointers(const std::vector<std::string>& texts, const std::string* first) {
  std::vector<char*> pointers;
  // posix_spawn does not write to them (its signature is C's).
  if (first != nullptr) pointers.push_back(const_cast<char*>(first->c_str()));
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const Command& command) {
  if (absl::Status checked = CheckFiles(command); !checked.ok()) return checked;
  SpawnPlan plan;
  int error = plan.Fill(command);
  pid_t pid = 0;
  if (error == 0) {
    const std::vector<char*> arguments = Pointers(command.arguments, &command.program);
    const std::vector<char*> environment = Pointers(command.environment, nullptr);
    error = posix_spawn(&pid, command.program.c_str(), plan.actions(), plan.attributes(),
                        arguments.data(), environment.data());
  }
  if (error != 0) {
    return absl::InvalidArgumentError(
        fmt::format("cannot start '{}': {}", command.program, Reason(error)));
  }
  return pid;
}

std::vector<std::string> InheritedEnvironment(const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool wanted = std::ranges::any_of(names, [&](std::string_view pattern) {
      return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                    : name == pattern;
    });
    if (wanted) kept.emplace_back(text);
  }
  return kept;
}

}  // namespace tundish::process
