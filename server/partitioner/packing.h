#pragma once

#include <string>
#include <vector>

#include "server/partitioner/partitioner.h"

namespace tundish::partitioner {

/// One tensor-parallel group that could be used.
struct Group {
  std::vector<const DeviceView*> devices;
  /// 0: inside a domain of the smallest level (or a single device), growing with the domain; the
  /// level of the whole host is the number of levels, a group across hosts has one more.
  int level = 0;
  /// "chip:3", "nvlink:0"; empty for a single device, the host, or several hosts.
  std::string domain;
  /// Free devices in the smallest domain around it: a tight fit leaves larger ones whole.
  int domain_free = 0;
};

/// What one host can give.
struct HostGroups {
  std::string node;
  std::vector<Group> groups;
  /// Fewer than `tensor` of them.
  std::vector<const DeviceView*> leftover;
};

/// Cuts one host's devices into as many groups of `tensor` as possible, from the smallest domains
/// upwards: what a domain cannot use goes up to the next larger one. Since ⌊Σ⌋ of a domain's parts
/// and their remainders is ⌊total⌋, this yields the most groups at every level at once. `devices`
/// are sorted by domain and name; `levels` is the greatest number of link domains of any device in
/// the cluster.
HostGroups PackHost(const std::vector<const DeviceView*>& devices, int tensor, int levels);

}  // namespace tundish::partitioner
