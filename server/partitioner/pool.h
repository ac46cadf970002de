#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "server/partitioner/natural_order.h"
#include "server/partitioner/packing.h"
#include "server/partitioner/partitioner.h"

namespace tundish::partitioner {

/// Free devices of one kind, host by host. What hosts can give is worked out once per host and
/// tensor degree and kept until the host changes, so a placement costs little per host that it does
/// not use. Not thread-safe, not even two const calls.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Replaces what `node` has free; nothing removes it. Every device is the node's and named once.
  void SetHost(const std::string& node, std::vector<DeviceView> free);

  int free() const { return free_; }
  int FreeOn(const std::string& node) const;
  std::size_t hosts() const { return hosts_.size(); }

  /// As Partition() of the free devices but those of the hosts in `without`. The pool is not
  /// changed.
  absl::StatusOr<Placement> Place(int tensor, int data,
                                  const std::set<std::string>& without = {}) const;

 private:
  struct Host {
    std::vector<DeviceView> devices;  // Sorted; `groups` point into it.
    int levels = 0;
    /// By tensor degree and the pool's levels.
    mutable std::map<std::pair<int, int>, HostGroups> groups;
  };
  struct ByName {
    bool operator()(const std::string& a, const std::string& b) const { return NaturalLess(a, b); }
  };

  const HostGroups& GroupsOf(const Host& host, int tensor) const;

  std::map<std::string, Host, ByName> hosts_;
  /// Link levels of a host → hosts that have so many.
  std::map<int, int> levels_;
  int free_ = 0;
};

}  // namespace tundish::partitioner
