#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"

namespace tundish::client {
namespace {

struct Options {
  std::string node;
  bool undo = false;
};

absl::StatusOr<int> Drain(const std::string& address, const Options& options) {
  v1::DrainNodeRequest request;
  request.set_node(options.node);
  request.set_drain(!options.undo);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::DrainNodeResponse> response =
      coordinator.Call(&v1::ClusterService::StubInterface::DrainNode, request);
  if (!response.ok()) return response.status();
  Print(options.undo
            ? fmt::format("node {} takes new ranks again\n", options.node)
            : fmt::format("node {} gets no new ranks; running jobs go on\n", options.node));
  return kSuccess;
}

}  // namespace

void AddDrain(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command =
      *app.add_subcommand("drain", "Give a node no new ranks; running jobs are left alone");
  command.add_option("NODE", options->node, "Name as `tundish nodes` lists it")->required();
  command.add_flag("--undo", options->undo, "Let it take ranks again");
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Drain(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
