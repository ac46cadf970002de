#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "runtime/config/nearest_key.h"

namespace tundish::client {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 success, 1 the job or operation failed, 2 usage, 3 coordinator unreachable,\n"
    "4 refused (not found, denied, invalid).";

/// Every error is one line.
void PrintError(std::string_view message) {
  std::string line(message);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  fmt::print(stderr, "tundish: {}\n", line);
}

std::string CheckAddress(const std::string& address) {
  return address.starts_with("unix:") ? "" : CheckHostPort(address);
}

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  // CLI11 says only that a command is missing where one is misspelt.
  const std::vector<std::string> unknown = app.remaining();
  if (app.get_subcommands().empty() && !unknown.empty() && !unknown[0].starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      names.push_back(command->get_name());
    }
    return fmt::format("\"{}\" is no command, did you mean {}? Commands: {}", unknown[0],
                       NearestKey(unknown[0], names), fmt::join(names, ", "));
  }
  return fmt::format("{}; see `tundish --help`", error.what());
}

int Main(int argc, char** argv) {
  CLI::App app("Submits, watches and manages training jobs of a Tundish cluster.", "tundish");
  Invocation invocation;
  app.set_version_flag("--version", std::string("tundish ") + TUNDISH_VERSION);
  app.footer(kExitCodes);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--coordinator", invocation.coordinator, "Address of the coordinator, HOST:PORT")
      ->envname("TUNDISH_COORDINATOR")
      ->check(CheckAddress)
      ->capture_default_str();
  for (const auto add : {AddUp, AddDown, AddSubmit, AddWatch, AddList, AddDescribe, AddExplain,
                         AddLogs, AddCancel, AddPlan, AddNodes, AddDrain, AddCheckpoints, AddExport,
                         AddReport, AddArtifacts, AddFetch, AddBackup}) {
    add(app, invocation);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help, --version
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    PrintError(UsageError(app, error));
    return kUsage;
  }
  const absl::StatusOr<int> code = invocation.run();
  if (code.ok()) return *code;
  PrintError(std::string(code.status().message()));
  return ExitCodeOf(code.status());
}

}  // namespace
}  // namespace tundish::client

int main(int argc, char** argv) {
  return tundish::client::Main(argc, argv);
}
