#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::partitioner {

/// A device that may be used.
struct DeviceView {
  std::string node;
  /// Unique on its node, e.g. "cuda:3".
  std::string device;
  /// From the smallest to the largest; the host is implied. Domains nest.
  std::vector<std::string> link_domains;
};

struct Place {
  int dp = 0;
  int tp = 0;
  std::string node;
  std::string device;
  bool operator==(const Place&) const = default;
};

struct Placement {
  /// Ordered by (dp, tp): index = dp * tensor + tp.
  std::vector<Place> places;
  /// Tensor-parallel groups that span hosts; 0 whenever `tensor` free devices of one host exist
  /// often enough.
  int groups_across_hosts = 0;
  /// Times that the data-parallel rings (one per tp, closed) go from one host to another.
  int cross_host_hops = 0;
  /// Why here, in a sentence, e.g. "2 groups of 2 on host-a, each inside one nvlink".
  std::string reason;
};

/// Cuts `data` tensor-parallel groups of `tensor` devices out of `devices` (all of one kind, all
/// free). In this order it minimises: groups that span hosts; the size class of the link domain
/// each group lies in (a group lies inside the smallest domain that holds it); hosts used; then it
/// leaves whole domains free and prefers lower names. Replicas of one host get consecutive dp, so a
/// ring over dp crosses hosts as seldom as it can (see ring.h). Deterministic: the order of
/// `devices` does not matter. Errors: INVALID_ARGUMENT for a degree < 1 or a device listed twice;
/// RESOURCE_EXHAUSTED when there are fewer than tensor × data devices.
absl::StatusOr<Placement> Partition(const std::vector<DeviceView>& devices, int tensor, int data);

}  // namespace tundish::partitioner
