#include "server/partitioner/partitioner.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "server/partitioner/pool.h"

namespace tundish::partitioner {

absl::StatusOr<Placement> Partition(const std::vector<DeviceView>& devices, int tensor, int data) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  std::map<std::string_view, std::vector<DeviceView>> hosts;
  for (const DeviceView& device : devices) {
    if (!seen.insert({device.node, device.device}).second) {
      return absl::InvalidArgumentError(fmt::format(
          "device {} of {} is listed twice: expected once", device.device, device.node));
    }
    hosts[device.node].push_back(device);
  }
  Pool pool;
  for (auto& [node, free] : hosts) pool.SetHost(std::string(node), std::move(free));
  return pool.Place(tensor, data);
}

}  // namespace tundish::partitioner
