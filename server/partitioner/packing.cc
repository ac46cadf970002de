#include "server/partitioner/packing.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tundish::partitioner {
namespace {

using Devices = std::vector<const DeviceView*>;

/// Name of the domain `depth` levels below the host, 1 being the largest; empty if there is none.
std::string_view DomainAt(const DeviceView& device, int depth) {
  const int size = static_cast<int>(device.link_domains.size());
  return depth <= size ? std::string_view(device.link_domains[size - depth]) : std::string_view();
}

class HostPacker {
 public:
  HostPacker(int tensor, int levels, std::vector<Group>& groups)
      : tensor_(tensor), levels_(levels), groups_(groups) {}

  /// Packs the devices of one domain (the host at depth 0) and returns those it could not use.
  Devices Pack(const Devices& devices, int depth) {
    Devices left;
    if (depth < levels_) {
      for (Devices& remainder : PackParts(devices, depth + 1)) {
        left.insert(left.end(), remainder.begin(), remainder.end());
      }
    } else {
      left = devices;
    }
    const std::size_t usable = left.size() / tensor_ * tensor_;
    const std::string domain(depth > 0 ? DomainAt(*devices[0], depth) : std::string_view());
    for (std::size_t first = 0; first < usable; first += tensor_) {
      Group& group = groups_.emplace_back();
      group.devices.assign(left.begin() + first, left.begin() + first + tensor_);
      group.level = tensor_ == 1 ? 0 : levels_ - depth;
      if (tensor_ > 1) group.domain = domain;
      group.domain_free = static_cast<int>(devices.size());
    }
    left.erase(left.begin(), left.begin() + usable);
    return left;
  }

 private:
  /// Packs each part of a domain; the largest remainders come first, so that groups made of them
  /// touch few parts.
  std::vector<Devices> PackParts(const Devices& devices, int depth) {
    std::vector<Devices> remainders;
    for (auto first = devices.begin(); first != devices.end();) {
      const std::string_view name = DomainAt(**first, depth);
      const auto last = std::find_if(first, devices.end(), [&](const DeviceView* device) {
        return DomainAt(*device, depth) != name;
      });
      const Devices part(first, last);
      // A device without a domain at this depth belongs to the one above.
      remainders.push_back(name.empty() ? part : Pack(part, depth));
      first = last;
    }
    std::ranges::stable_sort(remainders,
                             [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return remainders;
  }

  const int tensor_;
  const int levels_;
  std::vector<Group>& groups_;
};

}  // namespace

HostGroups PackHost(const Devices& devices, int tensor, int levels) {
  HostGroups host{.node = devices[0]->node};
  host.leftover = HostPacker(tensor, levels, host.groups).Pack(devices, 0);
  return host;
}

}  // namespace tundish::partitioner
