#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/local/local_cluster.h"

namespace tundish::client {
namespace {

absl::StatusOr<int> Down(std::string state_dir) {
  if (state_dir.empty()) {
    absl::StatusOr<std::string> folder = DefaultStateDir();
    if (!folder.ok()) return folder.status();
    state_dir = *std::move(folder);
  }
  const absl::StatusOr<std::string> text =
      StopLocalCluster(std::filesystem::absolute(state_dir).lexically_normal().string());
  if (!text.ok()) return text.status();
  Print(*text);
  return kSuccess;
}

}  // namespace

void AddDown(CLI::App& app, Invocation& invocation) {
  const auto state_dir = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("down", "Stop what `tundish up` started, ranks included");
  command.add_option("--state-dir", *state_dir, "As given to up");
  command.callback(
      [&invocation, state_dir] { invocation.run = [state_dir] { return Down(*state_dir); }; });
}

}  // namespace tundish::client
