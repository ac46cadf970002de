#include <algorithm>
#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

std::string NodeTable(const v1::ListNodesResponse& response) {
  if (response.nodes().empty()) return "no nodes; start a tundish-agent\n";
  Table table(
      {"NODE", "STATE", "DEVICES", "FREE", "LAST HEARD", "VERSION"},
      {Table::Align::kLeft, Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight});
  for (const v1::NodeStatus& node : response.nodes()) {
    const auto free = std::ranges::count_if(
        node.devices(), [](const v1::DeviceStatus& device) { return device.job_id().empty(); });
    table.AddRow({Printable(node.node()), node.state(), fmt::format("{}", node.devices_size()),
                  fmt::format("{}", free), DateTime(node.last_heard()), node.version()});
  }
  return table.ToString();
}

absl::StatusOr<int> Nodes(const std::string& address, bool json) {
  Coordinator coordinator(address);
  const absl::StatusOr<v1::ListNodesResponse> response =
      coordinator.Call(&v1::ClusterService::StubInterface::ListNodes, v1::ListNodesRequest());
  if (!response.ok()) return response.status();
  Print(json ? ToJson(*response) + "\n" : NodeTable(*response));
  return kSuccess;
}

}  // namespace

void AddNodes(CLI::App& app, Invocation& invocation) {
  const auto json = std::make_shared<bool>(false);
  CLI::App& command = *app.add_subcommand("nodes", "List hosts and their devices");
  AddJsonOption(command, json.get());
  command.callback([&invocation, json] {
    invocation.run = [&invocation, json] { return Nodes(invocation.coordinator, *json); };
  });
}

}  // namespace tundish::client
