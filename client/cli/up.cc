#include <filesystem>
#include <memory>

#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "client/local/local_cluster.h"

namespace tundish::client {
namespace {

absl::StatusOr<int> Up(LocalClusterOptions options) {
  if (options.state_dir.empty()) {
    absl::StatusOr<std::string> folder = DefaultStateDir();
    if (!folder.ok()) return folder.status();
    options.state_dir = *std::move(folder);
  }
  // The daemons have another working directory than the next caller.
  options.state_dir = std::filesystem::absolute(options.state_dir).lexically_normal().string();
  options.binary_dir = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  const absl::StatusOr<std::string> text = StartLocalCluster(options);
  if (!text.ok()) return text.status();
  Print(*text);
  return kSuccess;
}

}  // namespace

void AddUp(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<LocalClusterOptions>();
  CLI::App& command =
      *app.add_subcommand("up", "Run a coordinator and an agent on this host; see also down");
  command.add_option("--devices", options->devices, "What the agent offers: KIND:COUNT")
      ->capture_default_str();
  command.add_option(
      "--state-dir", options->state_dir,
      "State, logs and artifacts (default: ${XDG_STATE_HOME:-~/.local/state}/tundish)");
  command.add_option("--listen", options->listen, "gRPC address of the coordinator")
      ->check(CheckHostPort)
      ->capture_default_str();
  command.add_option("--http", options->http, "HTTP address of the coordinator")
      ->check(CheckHostPort)
      ->capture_default_str();
  command.add_option("--agent-http", options->agent_http, "HTTP address of the agent")
      ->check(CheckHostPort)
      ->capture_default_str();
  command.add_option("--log-level", options->log_level, "Of both daemons")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}))
      ->capture_default_str();
  command.callback([&invocation, options] { invocation.run = [options] { return Up(*options); }; });
}

}  // namespace tundish::client
