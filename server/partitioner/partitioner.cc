#include "server/partitioner/partitioner.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "server/partitioner/natural_order.h"
#include "server/partitioner/packing.h"

namespace tundish::partitioner {
namespace {

using Devices = std::vector<const DeviceView*>;

/// By node, then by domain from the largest down, then by name.
bool Before(const DeviceView* a, const DeviceView* b) {
  if (a->node != b->node) return NaturalLess(a->node, b->node);
  const auto& x = a->link_domains;
  const auto& y = b->link_domains;
  for (std::size_t depth = 1; depth <= std::min(x.size(), y.size()); ++depth) {
    const std::string& p = x[x.size() - depth];
    const std::string& q = y[y.size() - depth];
    if (p != q) return NaturalLess(p, q);
  }
  if (x.size() != y.size()) return x.size() < y.size();
  return NaturalLess(a->device, b->device);
}

std::vector<HostGroups> PackHosts(const Devices& devices, int tensor) {
  std::size_t levels = 0;
  for (const DeviceView* device : devices) levels = std::max(levels, device->link_domains.size());
  std::vector<HostGroups> hosts;
  for (auto first = devices.begin(); first != devices.end();) {
    const auto last = std::find_if(first, devices.end(), [&](const DeviceView* device) {
      return device->node != (*first)->node;
    });
    hosts.push_back(PackHost(Devices(first, last), tensor, static_cast<int>(levels)));
    first = last;
  }
  return hosts;
}

/// Chooses among the groups that hosts offer, level by level.
class Chooser {
 public:
  explicit Chooser(std::vector<HostGroups>& hosts) : hosts_(hosts), used_(hosts.size(), false) {}

  /// At most `wanted` groups inside hosts: the smallest levels, on as few hosts as that allows.
  std::vector<Group> ChooseInside(int wanted) {
    std::map<int, std::vector<Offer>> by_level;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      std::map<int, std::vector<Group*>> groups;
      for (Group& group : hosts_[host].groups) groups[group.level].push_back(&group);
      for (auto& [level, list] : groups) {
        std::ranges::stable_sort(
            list, [](const Group* a, const Group* b) { return a->domain_free < b->domain_free; });
        by_level[level].push_back({host, std::move(list)});
      }
    }
    for (auto& [level, offers] : by_level) ChooseLevel(offers, wanted - Taken());
    std::vector<Group> chosen;
    for (auto& [host, groups] : chosen_) {
      for (Group* group : groups) chosen.push_back(std::move(*group));
    }
    return chosen;
  }

  /// `wanted` groups out of what the hosts have left, hosts already in use first.
  std::vector<Group> ChooseAcross(int wanted, int tensor) {
    std::vector<std::size_t> order(hosts_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      if (used_[a] != used_[b]) return bool{used_[a]};
      return hosts_[a].leftover.size() > hosts_[b].leftover.size();
    });
    Devices left;
    for (const std::size_t host : order) {
      left.insert(left.end(), hosts_[host].leftover.begin(), hosts_[host].leftover.end());
    }
    std::vector<Group> groups(wanted);
    for (int i = 0; i < wanted; ++i) {
      groups[i].devices.assign(left.begin() + std::int64_t{i} * tensor,
                               left.begin() + std::int64_t{i + 1} * tensor);
    }
    return groups;
  }

 private:
  struct Offer {
    std::size_t host;
    std::vector<Group*> groups;
  };

  int Taken() const {
    std::size_t taken = 0;
    for (const auto& [host, groups] : chosen_) taken += groups.size();
    return static_cast<int>(taken);
  }

  void ChooseLevel(std::vector<Offer>& offers, int wanted) {
    while (wanted > 0 && !offers.empty()) {
      const auto best = std::ranges::min_element(
          offers, [&](const Offer& a, const Offer& b) { return Better(a, b, wanted); });
      const int count = std::min<int>(wanted, static_cast<int>(best->groups.size()));
      auto& groups = chosen_[best->host];
      groups.insert(groups.end(), best->groups.begin(), best->groups.begin() + count);
      used_[best->host] = true;
      wanted -= count;
      offers.erase(best);
    }
  }

  /// A host in use costs nothing more; one that gives all that is missing is best when it has the
  /// fewest to spare; else the one that gives most.
  bool Better(const Offer& a, const Offer& b, int wanted) const {
    if (used_[a.host] != used_[b.host]) return used_[a.host];
    const int size_a = static_cast<int>(a.groups.size());
    const int size_b = static_cast<int>(b.groups.size());
    const bool enough_a = size_a >= wanted;
    if (enough_a != (size_b >= wanted)) return enough_a;
    if (size_a != size_b) return enough_a ? size_a < size_b : size_a > size_b;
    return a.host < b.host;
  }

  std::vector<HostGroups>& hosts_;
  std::vector<bool> used_;
  std::map<std::size_t, std::vector<Group*>> chosen_;
};

std::string Reason(const std::vector<Group>& inside, int across, int tensor) {
  // Per host and kind of domain: how many groups.
  std::vector<std::pair<std::pair<std::string, std::string>, int>> counts;
  for (const Group& group : inside) {
    const std::string kind = group.domain.substr(0, group.domain.find(':'));
    const std::pair key{group.devices[0]->node, kind};
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
  return fmt::format("{}", fmt::join(parts, "; "));
}

absl::Status Check(const std::vector<DeviceView>& devices, int tensor, int data) {
  if (tensor < 1 || data < 1) {
    return absl::InvalidArgumentError(
        fmt::format("tensor={} and data={}: expected 1 or more of both", tensor, data));
  }
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const DeviceView& device : devices) {
    if (!seen.insert({device.node, device.device}).second) {
      return absl::InvalidArgumentError(fmt::format(
          "device {} of {} is listed twice: expected once", device.device, device.node));
    }
  }
  const std::int64_t needed = std::int64_t{tensor} * data;
  if (std::ssize(devices) < needed) {
    return absl::ResourceExhaustedError(fmt::format("needs {} devices ({} x {}), {} are free",
                                                    needed, tensor, data, devices.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Placement> Partition(const std::vector<DeviceView>& devices, int tensor, int data) {
  if (absl::Status good = Check(devices, tensor, data); !good.ok()) return good;
  Devices sorted;
  for (const DeviceView& device : devices) sorted.push_back(&device);
  std::ranges::sort(sorted, Before);

  std::vector<HostGroups> hosts = PackHosts(sorted, tensor);
  Chooser chooser(hosts);
  std::vector<Group> groups = chooser.ChooseInside(data);
  std::ranges::stable_sort(
      groups, [](const Group& a, const Group& b) { return Before(a.devices[0], b.devices[0]); });
  Placement placement;
  placement.groups_across_hosts = data - static_cast<int>(groups.size());
  placement.reason = Reason(groups, placement.groups_across_hosts, tensor);
  for (Group& group : chooser.ChooseAcross(placement.groups_across_hosts, tensor)) {
    groups.push_back(std::move(group));
  }
  for (int dp = 0; dp < data; ++dp) {
    std::ranges::sort(groups[dp].devices, Before);
    for (int tp = 0; tp < tensor; ++tp) {
      const DeviceView& device = *groups[dp].devices[tp];
      placement.places.push_back({dp, tp, device.node, device.device});
    }
  }
  return placement;
}

}  // namespace tundish::partitioner
