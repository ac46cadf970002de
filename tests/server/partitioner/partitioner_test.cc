#include "server/partitioner/partitioner.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "server/partitioner/natural_order.h"
#include "server/partitioner/pool.h"
#include "worker/topology/topology.h"

namespace tundish::partitioner {
namespace {

/// Devices kind:0 … of one host whose level i has domains of sizes[i] devices, smallest first.
std::vector<DeviceView> Host(const std::string& node, int count,
                             const std::vector<std::pair<std::string, int>>& levels) {
  std::vector<DeviceView> devices;
  for (int i = 0; i < count; ++i) {
    DeviceView device{node, fmt::format("dev:{}", i), {}};
    for (const auto& [name, size] : levels) {
      device.link_domains.push_back(fmt::format("{}:{}", name, i / size));
    }
    devices.push_back(device);
  }
  return devices;
}

std::vector<DeviceView> operator+(std::vector<DeviceView> a, const std::vector<DeviceView>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<DeviceView> Without(std::vector<DeviceView> devices, const std::set<int>& indexes) {
  std::vector<DeviceView> kept;
  for (int i = 0; i < std::ssize(devices); ++i) {
    if (!indexes.contains(i)) kept.push_back(devices[i]);
  }
  return kept;
}

std::string Show(const Placement& placement) {
  std::string text;
  for (const Place& place : placement.places) {
    text += fmt::format("{}{}/{}", place.tp == 0 ? (place.dp == 0 ? "" : " | ") : " ", place.node,
                        place.device);
  }
  return text;
}

const std::vector<std::pair<std::string, int>> kTrn1 = {{"chip", 2}, {"row", 8}, {"link", 32}};

TEST(PartitionTest, Places) {
  struct Case {
    const char* name;
    std::vector<DeviceView> devices;
    int tensor, data;
    const char* places;
    const char* reason;
  };
  const Case cases[] = {
      {"plain CPUs", Host("a", 4, {}), 2, 2, "a/dev:0 a/dev:1 | a/dev:2 a/dev:3",
       "2 groups of 2 on a, each inside the host"},
      {"one device", Host("a", 4, {}), 1, 1, "a/dev:0", "1 replica of 1 device on a"},
      {"an NVLink host", Host("a", 8, {{"nvlink", 8}}), 4, 2,
       "a/dev:0 a/dev:1 a/dev:2 a/dev:3 | a/dev:4 a/dev:5 a/dev:6 a/dev:7",
       "2 groups of 4 on a, each inside one nvlink"},
      {"stays in the socket", Without(Host("a", 8, {{"switch", 2}, {"socket", 4}}), {0}), 4, 1,
       "a/dev:4 a/dev:5 a/dev:6 a/dev:7", "1 group of 4 on a, inside one socket"},
      {"pairs stay on a switch", Without(Host("a", 8, {{"switch", 2}, {"socket", 4}}), {0, 3}), 2,
       2, "a/dev:4 a/dev:5 | a/dev:6 a/dev:7", "2 groups of 2 on a, each inside one switch"},
      {"leftovers meet in the socket",
       Without(Host("a", 8, {{"switch", 2}, {"socket", 4}}), {0, 3}), 2, 3,
       "a/dev:1 a/dev:2 | a/dev:4 a/dev:5 | a/dev:6 a/dev:7",
       "1 group of 2 on a, inside one socket; 2 groups of 2 on a, each inside one switch"},
      {"one host rather than two", Host("a", 2, {}) + Host("b", 4, {}), 1, 4,
       "b/dev:0 | b/dev:1 | b/dev:2 | b/dev:3", "4 replicas of 1 device on b"},
      {"the tightest host", Host("a", 4, {}) + Host("b", 2, {}), 2, 1, "b/dev:0 b/dev:1",
       "1 group of 2 on b, inside the host"},
      {"the broken chip first", Without(Host("a", 8, kTrn1), {2}), 1, 1, "a/dev:3",
       "1 replica of 1 device on a"},
      {"no crossing when avoidable", Host("a", 3, {}) + Host("b", 3, {}), 2, 2,
       "a/dev:0 a/dev:1 | b/dev:0 b/dev:1",
       "1 group of 2 on a, inside the host; 1 group of 2 on b, inside the host; the rings over "
       "replicas cross hosts 4 times"},
      {"crossing when not", Host("a", 3, {}) + Host("b", 3, {}), 2, 3,
       "a/dev:0 a/dev:1 | b/dev:0 b/dev:1 | a/dev:2 b/dev:2",
       "1 group of 2 on a, inside the host; 1 group of 2 on b, inside the host; 1 group of 2 "
       "across hosts, for no host has enough devices left; the rings over replicas cross hosts 4 "
       "times"},
      {"numbers sort as numbers", Host("h10", 1, {}) + Host("h9", 1, {}), 1, 1, "h9/dev:0",
       "1 replica of 1 device on h9"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto placement = Partition(c.devices, c.tensor, c.data);
    ASSERT_TRUE(placement.ok()) << placement.status();
    EXPECT_EQ(Show(*placement), c.places);
    EXPECT_EQ(placement->reason, c.reason);
  }
}

TEST(PartitionTest, ThirtyTwoNeuronCoresBecomeEightGroupsOfFour) {
  const auto placement = Partition(Host("trn", 32, kTrn1), 4, 8);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->reason, "8 groups of 4 on trn, each inside one row");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(placement->places[i].device, fmt::format("dev:{}", i));
}

TEST(PartitionTest, RefusesWhatCannotBe) {
  struct Case {
    std::vector<DeviceView> devices;
    int tensor, data;
    absl::StatusCode code;
    const char* message;
  };
  const Case cases[] = {
      {Host("a", 4, {}), 0, 1, absl::StatusCode::kInvalidArgument,
       "tensor=0 and data=1: expected 1 or more of both"},
      {Host("a", 4, {}), 2, -1, absl::StatusCode::kInvalidArgument,
       "tensor=2 and data=-1: expected 1 or more of both"},
      {Host("a", 2, {}) + Host("a", 1, {}), 1, 1, absl::StatusCode::kInvalidArgument,
       "device dev:0 of a is listed twice: expected once"},
      {Host("a", 7, {}), 4, 2, absl::StatusCode::kResourceExhausted,
       "needs 8 devices (4 x 2), 7 are free"},
      {Host("a", 7, {}), 1 << 20, 1 << 20, absl::StatusCode::kResourceExhausted,
       "needs 1099511627776 devices (1048576 x 1048576), 7 are free"},
      {{}, 1, 1, absl::StatusCode::kResourceExhausted, "needs 1 devices (1 x 1), 0 are free"},
  };
  for (const Case& c : cases) {
    const auto placement = Partition(c.devices, c.tensor, c.data);
    EXPECT_EQ(placement.status().code(), c.code);
    EXPECT_EQ(placement.status().message(), c.message);
  }
}

/// What Partition promises to minimise, most important first.
using Cost = std::tuple<int, int, int>;  // groups across hosts, sum of levels, hosts

int GroupLevel(const std::vector<const DeviceView*>& group, int levels) {
  if (group.size() == 1) return 0;
  for (const DeviceView* device : group) {
    if (device->node != group[0]->node) return levels + 1;
  }
  // All test hosts have the same number of levels; domain names repeat under another parent, so the
  // whole path from the host down counts.
  const int own = static_cast<int>(group[0]->link_domains.size());
  int shared = 0;
  for (int depth = 1; depth <= own; ++depth) {
    const bool same = std::ranges::all_of(group, [&](const DeviceView* device) {
      return device->link_domains[own - depth] == group[0]->link_domains[own - depth];
    });
    if (!same) break;
    shared = depth;
  }
  return levels - shared;
}

Cost CostOf(const std::vector<std::vector<const DeviceView*>>& groups, int levels) {
  int across = 0;
  int sum = 0;
  std::set<std::string> hosts;
  for (const auto& group : groups) {
    const int level = GroupLevel(group, levels);
    across += level > levels ? 1 : 0;
    sum += level > levels ? 0 : level;
    for (const DeviceView* device : group) hosts.insert(device->node);
  }
  return {across, sum, static_cast<int>(hosts.size())};
}

/// Tries every way to choose `data` groups.
Cost BruteForce(const std::vector<DeviceView>& devices, int tensor, int data, int levels) {
  Cost best{1 << 20, 0, 0};
  std::vector<bool> used(devices.size(), false);
  std::vector<std::vector<const DeviceView*>> groups;
  std::function<void(int)> next;
  std::function<void(int, int)> extend = [&](int from, int first) {
    if (std::ssize(groups.back()) == tensor) {
      next(first + 1);
      return;
    }
    for (int i = from; i < std::ssize(devices); ++i) {
      if (used[i]) continue;
      used[i] = true;
      groups.back().push_back(&devices[i]);
      extend(i + 1, first);
      groups.back().pop_back();
      used[i] = false;
    }
  };
  // Groups ordered by their first device, so that no choice is tried twice.
  next = [&](int from) {
    if (std::ssize(groups) == data) {
      best = std::min(best, CostOf(groups, levels));
      return;
    }
    for (int i = from; i < std::ssize(devices); ++i) {
      if (used[i]) continue;
      used[i] = true;
      groups.push_back({&devices[i]});
      extend(i + 1, i);
      groups.pop_back();
      used[i] = false;
    }
  };
  next(0);
  return best;
}

std::vector<std::vector<const DeviceView*>> GroupsOf(const std::vector<DeviceView>& devices,
                                                     const Placement& placement, int tensor) {
  std::map<std::pair<std::string, std::string>, const DeviceView*> by_name;
  for (const DeviceView& device : devices) by_name[{device.node, device.device}] = &device;
  std::vector<std::vector<const DeviceView*>> groups(placement.places.size() / tensor);
  for (const Place& place : placement.places) {
    groups[place.dp].push_back(by_name.at({place.node, place.device}));
  }
  return groups;
}

/// Random hosts with up to three nested levels; some devices are taken.
std::vector<DeviceView> RandomCluster(std::mt19937& random, int hosts, int per_host, int levels) {
  std::vector<DeviceView> devices;
  for (int host = 0; host < hosts; ++host) {
    std::vector<std::pair<std::string, int>> shape;
    int size = 1;
    for (int level = 0; level < levels; ++level) {
      size *= 1 + static_cast<int>(random() % 3);
      shape.push_back({fmt::format("l{}", level), size});
    }
    for (DeviceView& device : Host(fmt::format("h{}", host), per_host, shape)) {
      if (random() % 4 != 0) devices.push_back(std::move(device));
    }
  }
  return devices;
}

TEST(PartitionTest, EqualsBruteForceOnSmallClusters) {
  std::mt19937 random(7);
  int compared = 0;
  for (int round = 0; round < 600; ++round) {
    const int levels = static_cast<int>(random() % 3);
    const auto devices = RandomCluster(random, 1 + random() % 3, 1 + random() % 4, levels);
    const int tensor = 1 + static_cast<int>(random() % 4);
    const int data = 1 + static_cast<int>(random() % 3);
    if (devices.size() > 9 || std::ssize(devices) < tensor * data) continue;
    const auto placement = Partition(devices, tensor, data);
    ASSERT_TRUE(placement.ok()) << placement.status();
    EXPECT_EQ(CostOf(GroupsOf(devices, *placement, tensor), levels),
              BruteForce(devices, tensor, data, levels))
        << "round " << round << ": " << Show(*placement);
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(PartitionTest, PropertiesHoldOnRandomClusters) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    const int levels = static_cast<int>(random() % 4);
    auto devices = RandomCluster(random, 1 + random() % 6, 1 + random() % 16, levels);
    const int tensor = 1 + static_cast<int>(random() % 8);
    const int data = 1 + static_cast<int>(random() % 6);
    const auto placement = Partition(devices, tensor, data);
    ASSERT_EQ(placement.ok(), std::ssize(devices) >= tensor * data) << placement.status();
    if (!placement.ok()) continue;
    ASSERT_EQ(std::ssize(placement->places), tensor * data);

    std::set<std::pair<std::string, std::string>> used;
    for (int i = 0; i < tensor * data; ++i) {
      const Place& place = placement->places[i];
      EXPECT_EQ(place.dp * tensor + place.tp, i);
      EXPECT_TRUE(used.insert({place.node, place.device}).second) << "used twice";
    }
    int inside_possible = 0;
    std::map<std::string, int> free;
    for (const DeviceView& device : devices) ++free[device.node];
    for (const auto& [node, count] : free) inside_possible += count / tensor;
    EXPECT_EQ(placement->groups_across_hosts, std::max(0, data - inside_possible));
    EXPECT_EQ(std::get<0>(CostOf(GroupsOf(devices, *placement, tensor), levels)),
              placement->groups_across_hosts);

    std::ranges::shuffle(devices, random);
    EXPECT_EQ(Partition(devices, tensor, data)->places, placement->places) << "depends on order";
  }
}

int HopsOf(const std::vector<std::vector<std::string>>& rows) {
  int hops = 0;
  for (std::size_t dp = 0; dp < rows.size(); ++dp) {
    const auto& next = rows[(dp + 1) % rows.size()];
    for (std::size_t tp = 0; tp < rows[dp].size(); ++tp) hops += rows[dp][tp] != next[tp] ? 1 : 0;
  }
  return hops;
}

/// Fewest hops over every order of the replicas, and of the devices of those that span hosts.
int FewestHops(std::vector<std::vector<std::string>> rows, std::size_t from = 1) {
  int best = HopsOf(rows);
  if (from < rows.size()) {
    for (std::size_t i = from; i < rows.size(); ++i) {
      std::swap(rows[from], rows[i]);
      std::vector<std::string> nodes = rows[from];
      std::ranges::sort(nodes);
      do {
        rows[from] = nodes;
        best = std::min(best, FewestHops(rows, from + 1));
      } while (std::ranges::next_permutation(nodes).found);
      std::swap(rows[from], rows[i]);
    }
  }
  return best;
}

TEST(PartitionTest, RingsCrossHostsAsSeldomAsTheyCan) {
  std::mt19937 random(13);
  int compared = 0;
  int spanning = 0;
  int extra = 0;
  for (int round = 0; round < 4000 && compared < 400; ++round) {
    const auto devices = RandomCluster(random, 2 + random() % 3, 1 + random() % 5, 0);
    const int tensor = 1 + static_cast<int>(random() % 3);
    const int data = 2 + static_cast<int>(random() % 4);
    const auto placement = Partition(devices, tensor, data);
    if (!placement.ok()) continue;
    std::vector<std::vector<std::string>> rows(data);
    for (const Place& place : placement->places) rows[place.dp].push_back(place.node);
    ASSERT_EQ(placement->cross_host_hops, HopsOf(rows));
    const int fewest = FewestHops(rows);
    ++compared;
    if (placement->groups_across_hosts == 0) {
      EXPECT_EQ(placement->cross_host_hops, fewest) << Show(*placement);
    } else {
      // Placed one after the other: seldom one or two more than the best order of all.
      ++spanning;
      extra += placement->cross_host_hops - fewest;
      EXPECT_LE(placement->cross_host_hops, fewest + 2 * placement->groups_across_hosts)
          << Show(*placement);
    }
  }
  EXPECT_EQ(compared, 400);
  EXPECT_GT(spanning, 25);
  EXPECT_LT(extra, spanning);
}

TEST(PoolTest, FollowsChangesOfHosts) {
  std::mt19937 random(17);
  Pool pool;
  std::map<std::string, std::vector<DeviceView>> hosts;
  for (int round = 0; round < 500; ++round) {
    const std::string node = fmt::format("h{}", random() % 5);
    const int levels = static_cast<int>(random() % 3);
    hosts[node].clear();
    for (DeviceView& device : RandomCluster(random, 1, 1 + random() % 8, levels)) {
      device.node = node;
      hosts[node].push_back(std::move(device));
    }
    pool.SetHost(node, hosts[node]);
    std::vector<DeviceView> all;
    for (const auto& [name, devices] : hosts) all = std::move(all) + devices;
    ASSERT_EQ(pool.free(), std::ssize(all));
    const int tensor = 1 + static_cast<int>(random() % 4);
    const int data = 1 + static_cast<int>(random() % 4);
    const auto fresh = Partition(all, tensor, data);
    const auto kept = pool.Place(tensor, data);
    ASSERT_EQ(kept.status(), fresh.status());
    if (!kept.ok()) continue;
    EXPECT_EQ(kept->places, fresh->places);
    EXPECT_EQ(kept->reason, fresh->reason);
  }
}

TEST(PoolTest, LeavesHostsOut) {
  Pool pool;
  pool.SetHost("a", Host("a", 4, {}));
  pool.SetHost("b", Host("b", 4, {}));
  EXPECT_EQ(pool.Place(2, 2, {"a"})->places[0].node, "b");
  EXPECT_EQ(pool.Place(2, 3, {"a"}).status().message(), "needs 6 devices (2 x 3), 4 are free");
  EXPECT_EQ(pool.FreeOn("b"), 4);
  pool.SetHost("b", {});
  EXPECT_EQ(pool.FreeOn("b"), 0);
  EXPECT_EQ(pool.free(), 4);
}

struct Shipped {
  const char* topology;
  int tensor, data;
  const char* reason;
};

TEST(PartitionTest, ShippedHosts) {
  const Shipped cases[] = {
      {"gpu8-nvlink", 2, 4, "4 groups of 2 on h0, each inside one nvlink"},
      {"gpu8-pcie", 2, 4, "4 groups of 2 on h0, each inside one pcie-switch"},
      {"gpu8-pcie", 4, 2, "2 groups of 4 on h0, each inside one socket"},
      {"trn1.32xlarge", 2, 16, "16 groups of 2 on h0, each inside one chip"},
      {"trn1.32xlarge", 4, 8, "8 groups of 4 on h0, each inside one torus-row"},
      {"trn1.32xlarge", 16, 2, "2 groups of 16 on h0, each inside one neuronlink"},
      {"trn2.48xlarge", 4, 16, "16 groups of 4 on h0, each inside one chip"},
      {"trn2.48xlarge", 8, 8, "8 groups of 8 on h0, each inside one torus-row"},
      {"cpu", 2, 2, "2 groups of 2 on h0, each inside the host"},
      {"gpu8-pcie", 4, 4,
       "2 groups of 4 on h0, each inside one socket; 2 groups of 4 on h1, each inside one socket; "
       "the rings over replicas cross hosts 8 times"},
  };
  for (const Shipped& c : cases) {
    SCOPED_TRACE(c.topology);
    const auto topology = topology::ReadTopology(TUNDISH_TOPOLOGIES, c.topology);
    ASSERT_TRUE(topology.ok()) << topology.status();
    std::vector<DeviceView> devices;
    for (const char* node : {"h0", "h1"}) {
      const auto listed = topology::ListDevices(*topology, topology->device_count() > 0 ? 0 : 4);
      ASSERT_TRUE(listed.ok()) << listed.status();
      for (const v1::Device& device : *listed) {
        devices.push_back(
            {node, device.name(), {device.link_domains().begin(), device.link_domains().end()}});
      }
    }
    const auto placement = Partition(devices, c.tensor, c.data);
    ASSERT_TRUE(placement.ok()) << placement.status();
    EXPECT_EQ(placement->reason, c.reason);
    EXPECT_EQ(placement->groups_across_hosts, 0);
  }
}

TEST(NaturalLessTest, OrdersDigitsAsNumbers) {
  const std::vector<std::string> sorted = {
      "", "a", "a0", "a00", "a1", "a2", "a10", "a10b2", "a10b", "a99999999999999999999", "b"};
  std::vector<std::string> shuffled = sorted;
  std::ranges::sort(shuffled, NaturalLess);
  EXPECT_TRUE(std::ranges::is_sorted(shuffled, NaturalLess));
  EXPECT_TRUE(NaturalLess("cuda:2", "cuda:10"));
  EXPECT_FALSE(NaturalLess("cuda:10", "cuda:2"));
  EXPECT_FALSE(NaturalLess("x", "x"));
  for (const auto& a : sorted) {
    for (const auto& b : sorted) {
      EXPECT_EQ(NaturalLess(a, b) || NaturalLess(b, a), a != b) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace tundish::partitioner
