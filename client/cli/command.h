#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

namespace tundish::client {

/// What the command line asked for. Each Add… puts one command (with its options) into the parser;
/// when that command is the one given, `run` is set to what carries it out and returns the exit
/// code.
struct Invocation {
  std::string coordinator = "127.0.0.1:7400";
  std::function<absl::StatusOr<int>()> run;
};

enum ExitCode : int {
  kSuccess = 0,
  /// The job or the operation failed.
  kFailed = 1,
  kUsage = 2,
  /// The coordinator is unreachable or cannot do it now.
  kUnreachable = 3,
  /// Not found, denied, invalid.
  kRefused = 4,
};

/// The exit code for an error: its kind, not its place.
ExitCode ExitCodeOf(const absl::Status& status);

/// Adds `-o json` to a command; `*json` becomes true when it is given.
void AddJsonOption(CLI::App& command, bool* json);

/// Writes text to standard output at once, so that a pipe's reader sees each line when it is made.
void Print(const std::string& text);

void AddUp(CLI::App& app, Invocation& invocation);
void AddDown(CLI::App& app, Invocation& invocation);
void AddSubmit(CLI::App& app, Invocation& invocation);
void AddWatch(CLI::App& app, Invocation& invocation);
void AddList(CLI::App& app, Invocation& invocation);
void AddDescribe(CLI::App& app, Invocation& invocation);
void AddExplain(CLI::App& app, Invocation& invocation);
void AddLogs(CLI::App& app, Invocation& invocation);
void AddCancel(CLI::App& app, Invocation& invocation);
void AddPlan(CLI::App& app, Invocation& invocation);
void AddNodes(CLI::App& app, Invocation& invocation);
void AddDrain(CLI::App& app, Invocation& invocation);
void AddCheckpoints(CLI::App& app, Invocation& invocation);
void AddExport(CLI::App& app, Invocation& invocation);
void AddArtifacts(CLI::App& app, Invocation& invocation);
void AddFetch(CLI::App& app, Invocation& invocation);
void AddBackup(CLI::App& app, Invocation& invocation);
void AddReport(CLI::App& app, Invocation& invocation);

}  // namespace tundish::client
