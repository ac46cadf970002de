#pragma once

#include <vector>

#include "server/partitioner/packing.h"

namespace tundish::partitioner {

/// The groups of one placement.
struct Choice {
  /// In no order; point into the hosts' groups.
  std::vector<const Group*> inside;
  /// Made of what hosts have left.
  std::vector<Group> across;
};

/// `wanted` groups of `tensor` devices out of what `hosts` offer (by name; together at least wanted
/// × tensor devices): of groups inside hosts the smallest levels, on as few hosts as that allows;
/// what is then missing comes from leftovers, of hosts already in use first.
///
/// Fewest hosts: every level but the last used is taken whole, which leaves no choice; on the last
/// one hosts in use cost nothing, and taking the largest offers first needs the fewest others.
Choice ChooseGroups(const std::vector<const HostGroups*>& hosts, int tensor, int wanted);

}  // namespace tundish::partitioner
