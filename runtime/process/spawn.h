#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::process {

/// A program to start.
struct Command {
  /// Path of the executable; PATH is not searched.
  std::string program;
  /// What follows argv[0], which is `program`.
  std::vector<std::string> arguments;
  /// The whole environment, "NAME=value" each; nothing is inherited.
  std::vector<std::string> environment;
  /// File read as standard input; empty: /dev/null.
  std::string stdin_file;
  /// Files standard output and error are appended to, made with mode 0600; empty: /dev/null. They
  /// are files and not pipes, so that the child outlives its parent.
  std::string stdout_file;
  std::string stderr_file;
};

/// Starts `command` in a session of its own, with default signal dispositions, no blocked signals
/// and no descriptor but 0, 1 and 2. The child is not tied to its parent's life.
/// Errors: InvalidArgument naming the program or file that cannot be opened or executed, and why.
/// Thread-safe.
absl::StatusOr<pid_t> Spawn(const Command& command);

/// The entries of this process's environment whose name is one of `names`, or starts with one of
/// them that ends in '*'.
std::vector<std::string> InheritedEnvironment(const std::vector<std::string>& names);

}  // namespace tundish::process
