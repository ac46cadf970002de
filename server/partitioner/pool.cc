#include "server/partitioner/pool.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "server/partitioner/choosing.h"
#include "server/partitioner/ring.h"

namespace tundish::partitioner {
namespace {

/// Groups inside hosts, in the order of their rows.
std::string Reason(std::vector<const Group*> inside, int across, int tensor, int hops) {
  std::ranges::sort(inside, [](const Group* a, const Group* b) {
    return DeviceBefore(*a->devices[0], *b->devices[0]);
  });
  // Per host and kind of domain: how many groups.
  std::vector<std::pair<std::pair<std::string, std::string>, int>> counts;
  for (const Group* group : inside) {
    const std::string kind = group->domain.substr(0, group->domain.find(':'));
    const std::pair key{group->devices[0]->node, kind};
    if (counts.empty() || counts.back().first != key) counts.push_back({key, 0});
    ++counts.back().second;
  }
  std::vector<std::string> parts;
  for (const auto& [key, count] : counts) {
    const std::string groups =
        tensor == 1 ? fmt::format("{} replica{} of 1 device", count, count == 1 ? "" : "s")
                    : fmt::format("{} group{} of {}", count, count == 1 ? "" : "s", tensor);
    std::string where;
    if (tensor > 1) {
      const std::string each = count == 1 ? "" : "each ";
      where = key.second.empty() ? fmt::format(", {}inside the host", each)
                                 : fmt::format(", {}inside one {}", each, key.second);
    }
    parts.push_back(fmt::format("{} on {}{}", groups, key.first, where));
  }
  if (across > 0) {
    parts.push_back(
        fmt::format("{} group{} of {} across hosts, for no host has enough devices left", across,
                    across == 1 ? "" : "s", tensor));
  }
  if (hops > 0) parts.push_back(fmt::format("the rings over replicas cross hosts {} times", hops));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

void Pool::SetHost(const std::string& node, std::vector<DeviceView> free) {
  if (const auto known = hosts_.find(node); known != hosts_.end()) {
    free_ -= static_cast<int>(known->second.devices.size());
    const auto level = levels_.find(known->second.levels);
    if (--level->second == 0) levels_.erase(level);
    hosts_.erase(known);
  }
  if (free.empty()) return;
  Host& host = hosts_[node];
  std::ranges::sort(free, DeviceBefore);
  for (const DeviceView& device : free) {
    host.levels = std::max(host.levels, static_cast<int>(device.link_domains.size()));
  }
  host.devices = std::move(free);
  free_ += static_cast<int>(host.devices.size());
  ++levels_[host.levels];
}

int Pool::FreeOn(const std::string& node) const {
  const auto host = hosts_.find(node);
  return host == hosts_.end() ? 0 : static_cast<int>(host->second.devices.size());
}

const HostGroups& Pool::GroupsOf(const Host& host, int tensor) const {
  const int levels = levels_.rbegin()->first;
  const auto known = host.groups.find({tensor, levels});
  if (known != host.groups.end()) return known->second;
  // A cluster grows a level now and then; jobs use a handful of degrees.
  if (host.groups.size() >= 8) host.groups.clear();
  std::vector<const DeviceView*> devices;
  for (const DeviceView& device : host.devices) devices.push_back(&device);
  return host.groups[{tensor, levels}] = PackHost(devices, tensor, levels);
}

absl::StatusOr<Placement> Pool::Place(int tensor, int data,
                                      const std::set<std::string>& without) const {
  if (tensor < 1 || data < 1) {
    return absl::InvalidArgumentError(
        fmt::format("tensor={} and data={}: expected 1 or more of both", tensor, data));
  }
  std::int64_t free = free_;
  for (const std::string& node : without) free -= FreeOn(node);
  const std::int64_t needed = std::int64_t{tensor} * data;
  if (free < needed) {
    return absl::ResourceExhaustedError(
        fmt::format("needs {} devices ({} x {}), {} are free", needed, tensor, data, free));
  }
  std::vector<const HostGroups*> hosts;
  for (const auto& [node, host] : hosts_) {
    if (without.empty() || !without.contains(node)) hosts.push_back(&GroupsOf(host, tensor));
  }
  Choice choice = ChooseGroups(hosts, tensor, data);

  Placement placement;
  placement.groups_across_hosts = static_cast<int>(choice.across.size());
  std::vector<Row> inside;
  for (const Group* group : choice.inside) inside.push_back(group->devices);
  std::vector<Row> across;
  for (Group& group : choice.across) across.push_back(std::move(group.devices));
  const std::vector<Row> rows = OrderRing(std::move(inside), std::move(across));
  placement.cross_host_hops = CrossHostHops(rows);
  placement.reason =
      Reason(choice.inside, placement.groups_across_hosts, tensor, placement.cross_host_hops);
  for (int dp = 0; dp < data; ++dp) {
    for (int tp = 0; tp < tensor; ++tp) {
      placement.places.push_back({dp, tp, rows[dp][tp]->node, rows[dp][tp]->device});
    }
  }
  return placement;
}

}  // namespace tundish::partitioner
