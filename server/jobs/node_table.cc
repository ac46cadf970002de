#include "server/jobs/node_table.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "server/jobs/job.h"

namespace tundish::jobs {

void NodeTable::Load(const v1::NodeRecord& record, Now now, std::chrono::milliseconds grace) {
  Node& node = nodes_[record.node()];
  node.name = record.node();
  node.incarnation = record.incarnation();
  node.registration = record.registration();
  node.drained = record.drained();
  node.last_heard = now.steady;
  node.last_heard_wall = FromTimestamp(record.last_heard());
  node.grace_until = now.steady + grace;
}

absl::Status NodeTable::CheckRegistration(const v1::AgentMessage& message) {
  constexpr int kMaxDevices = 1024;
  constexpr size_t kMaxName = 253;  // a DNS name
  if (message.node().empty() || message.node().size() > kMaxName) {
    return absl::InvalidArgumentError(
        fmt::format("node name '{:.64}' must have 1 to {} characters", message.node(), kMaxName));
  }
  if (message.incarnation().empty()) {
    return absl::InvalidArgumentError(
        fmt::format("node '{}' sends no incarnation; it must be a ULID", message.node()));
  }
  const v1::Register& registration = message.register_();
  if (registration.devices_size() > kMaxDevices) {
    return absl::InvalidArgumentError(fmt::format("node '{}' offers {} devices; the limit is {}",
                                                  message.node(), registration.devices_size(),
                                                  kMaxDevices));
  }
  constexpr uint32_t kMostPort = 65535;
  if (registration.data_port() > kMostPort) {
    return absl::InvalidArgumentError(fmt::format("node '{}' sends data_port {}; the limit is {}",
                                                  message.node(), registration.data_port(),
                                                  kMostPort));
  }
  std::set<std::string> names;
  for (const v1::Device& device : registration.devices()) {
    if (!names.insert(device.name()).second) {
      return absl::InvalidArgumentError(
          fmt::format("node '{}' lists device '{}' twice", message.node(), device.name()));
    }
  }
  return absl::OkStatus();
}

Node& NodeTable::Register(const v1::AgentMessage& message, std::shared_ptr<AgentLink> link,
                          Now now) {
  Node& node = nodes_[message.node()];
  node.name = message.node();
  node.incarnation = message.incarnation();
  node.registration = message.register_();
  node.registration.clear_workers();
  node.link = std::move(link);
  node.last_heard = now.steady;
  node.last_heard_wall = now.wall;
  node.unreachable = false;
  node.grace_until = {};
  node.link_check = {};
  node.problem.clear();
  return node;
}

Node* NodeTable::Find(std::string_view name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

void NodeTable::Occupy(std::string_view node, const std::vector<std::string>& devices,
                       Occupant occupant) {
  if (Node* found = Find(node)) {
    for (const std::string& device : devices) found->occupied[device] = occupant;
  }
}

bool NodeTable::Free(std::string_view node, std::string_view worker_id) {
  Node* found = Find(node);
  return found != nullptr && std::erase_if(found->occupied, [&](const auto& entry) {
                               return entry.second.worker_id == worker_id;
                             }) > 0;
}

std::vector<scheduler::NodeView> NodeTable::View() const {
  std::vector<scheduler::NodeView> views;
  for (const auto& [name, node] : nodes_) {
    scheduler::NodeView& view = views.emplace_back();
    view.node = name;
    view.ready = node.ready();
    view.drained = !node.usable();
    for (const v1::Device& device : node.registration.devices()) {
      view.devices.push_back(
          {.name = device.name(),
           .kind = device.kind(),
           .link_domains = {device.link_domains().begin(), device.link_domains().end()},
           .free = !node.occupied.contains(device.name())});
    }
  }
  return views;
}

v1::ListNodesResponse NodeTable::Describe() const {
  v1::ListNodesResponse response;
  for (const auto& [name, node] : nodes_) {
    v1::NodeStatus* status = response.add_nodes();
    status->set_node(name);
    status->set_incarnation(node.incarnation);
    status->set_state(!node.ready() ? "unreachable" : node.drained ? "drained" : "ready");
    status->set_version(node.registration.version());
    status->set_problem(node.problem);
    *status->mutable_last_heard() = ToTimestamp(node.last_heard_wall);
    for (const v1::Device& device : node.registration.devices()) {
      v1::DeviceStatus* entry = status->add_devices();
      *entry->mutable_device() = device;
      const auto occupant = node.occupied.find(device.name());
      if (occupant != node.occupied.end()) entry->set_job_id(occupant->second.job_id);
    }
  }
  return response;
}

v1::NodeRecord NodeTable::Record(const Node& node) {
  v1::NodeRecord record;
  record.set_node(node.name);
  record.set_incarnation(node.incarnation);
  record.set_drained(node.drained);
  *record.mutable_registration() = node.registration;
  *record.mutable_last_heard() = ToTimestamp(node.last_heard_wall);
  return record;
}

}  // namespace tundish::jobs
