#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>

namespace tundish::scheduler {
namespace {

/// Devices of one kind.
struct Pool {
  std::vector<partitioner::DeviceView> free;
  /// On ready, undrained nodes.
  std::int64_t total = 0;
  /// On nodes that are drained, or whose agent is away.
  std::int64_t drained = 0;
  std::int64_t away = 0;
  /// The job that waits for this pool, if one does.
  std::string head;
};

std::map<std::string, Pool> CountDevices(const std::vector<NodeView>& nodes) {
  std::map<std::string, Pool> pools;
  for (const NodeView& node : nodes) {
    for (const NodeDevice& device : node.devices) {
      Pool& pool = pools[device.kind];
      if (!node.ready) {
        ++pool.away;
      } else if (node.drained) {
        ++pool.drained;
      } else {
        ++pool.total;
        if (device.free) pool.free.push_back({node.node, device.name, device.link_domains});
      }
    }
  }
  return pools;
}

void Take(Pool& pool, const partitioner::Placement& placement) {
  std::set<std::pair<std::string_view, std::string_view>> taken;
  for (const partitioner::Place& place : placement.places) taken.insert({place.node, place.device});
  std::erase_if(pool.free, [&](const partitioner::DeviceView& device) {
    return taken.contains({device.node, device.device});
  });
}

/// "; 4 more are on drained nodes" where that helps to understand.
std::string Elsewhere(const Pool& pool) {
  std::string text;
  if (pool.drained > 0) text += fmt::format("; {} more on drained nodes", pool.drained);
  if (pool.away > 0) text += fmt::format("; {} more on nodes that are unreachable", pool.away);
  return text;
}

Waiting Wait(const PendingJob& job, const Pool& pool, std::int64_t needed) {
  const std::string needs =
      fmt::format("needs {} {} device{}", needed, job.device_kind, needed == 1 ? "" : "s");
  const std::string counts = fmt::format("{}, {} {} free of {} in all", needs, pool.free.size(),
                                         pool.free.size() == 1 ? "is" : "are", pool.total);
  if (pool.total == 0) {
    return {job.job_id, WaitCode::kNoNode,
            fmt::format("{}, no ready node offers any{}", needs, Elsewhere(pool))};
  }
  if (needed > pool.total) {
    return {job.job_id, WaitCode::kImpossibleNow,
            fmt::format("{}: more than the cluster has{}", counts, Elsewhere(pool))};
  }
  if (!pool.head.empty()) {
    return {job.job_id, WaitCode::kBehindJob,
            fmt::format("{}, and job {} comes first", counts, pool.head)};
  }
  return {job.job_id, WaitCode::kDevicesBusy, fmt::format("{}: other jobs hold the rest", counts)};
}

}  // namespace

std::string_view WaitCodeName(WaitCode code) {
  switch (code) {
    case WaitCode::kDevicesBusy:
      return "devices_busy";
    case WaitCode::kBehindJob:
      return "behind_job";
    case WaitCode::kImpossibleNow:
      return "impossible_now";
    case WaitCode::kNoNode:
      return "no_node";
  }
  return "unknown";
}

Decision Decide(const Input& input) {
  std::map<std::string, Pool> pools = CountDevices(input.nodes);
  std::vector<const PendingJob*> order;
  for (const PendingJob& job : input.pending) order.push_back(&job);
  std::ranges::sort(order, [](const PendingJob* a, const PendingJob* b) {
    return std::tie(b->priority, a->submitted, a->job_id) <
           std::tie(a->priority, b->submitted, b->job_id);
  });

  Decision decision;
  for (const PendingJob* job : order) {
    Pool& pool = pools[job->device_kind];
    const std::int64_t needed = std::int64_t{job->tensor} * job->data;
    if (pool.head.empty() && needed <= std::ssize(pool.free)) {
      auto placement = partitioner::Partition(pool.free, job->tensor, job->data);
      if (placement.ok()) {
        Take(pool, *placement);
        decision.starts.push_back({job->job_id, *std::move(placement)});
      } else {
        // Degrees below 1 or a device registered twice: it cannot start, and must not hold up
        // others.
        decision.waiting.push_back(
            {job->job_id, WaitCode::kImpossibleNow, std::string(placement.status().message())});
      }
      continue;
    }
    decision.waiting.push_back(Wait(*job, pool, needed));
    const WaitCode code = decision.waiting.back().code;
    if (code == WaitCode::kDevicesBusy) pool.head = job->job_id;
  }
  return decision;
}

}  // namespace tundish::scheduler
