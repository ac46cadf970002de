#pragma once

#include <vector>

#include "server/partitioner/partitioner.h"

namespace tundish::partitioner {

/// Devices of a group, by tp index.
using Row = std::vector<const DeviceView*>;

/// True if `a` comes before `b`: by node, then by domain from the largest down, then by name.
bool DeviceBefore(const DeviceView& a, const DeviceView& b);

/// Times that the rings over dp (one per tp index, closed) go from one host to another.
int CrossHostHops(const std::vector<Row>& rows);

/// Orders replicas, and the devices of those that span hosts, so that the rings cross hosts seldom.
/// Replicas of one host are neighbours, which is the fewest possible where no group spans hosts:
/// a ring that visits h > 1 hosts crosses at least h times. Groups that span hosts are put, one
/// after the other, where they cost least.
std::vector<Row> OrderRing(std::vector<Row> inside, std::vector<Row> across);

}  // namespace tundish::partitioner
