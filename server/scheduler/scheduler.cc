#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

// What the scheduler holds, and how it follows changes. decide.cc decides, explain.cc explains.
namespace tundish::scheduler {

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
    case WaitCode::kQuota:
      return "quota";
    case WaitCode::kWindow:
      return "maintenance_window";
  }
  return "unknown";
}

namespace {

/// Yielding runs are on their way out whatever their limit: they come first.
std::pair<Time, std::string> EndOf(const RunningJob& job) {
  return {job.yielding ? Time::min() : job.ends_by, job.job_id};
}

}  // namespace

const Share& Scheduler::ShareOf(const std::string& tenant) const {
  const auto own = shares_.find(tenant);
  return own == shares_.end() ? policy_.default_share : own->second;
}

Scheduler::Held Scheduler::HeldBy(const std::string& tenant) const {
  const auto held = held_.find(tenant);
  return held == held_.end() ? Held{} : held->second;
}

double Scheduler::Load(const std::string& tenant) const {
  return HeldBy(tenant).devices / ShareOf(tenant).weight;
}

/// Adds (or takes away) what a node counts for in its kinds.
void Scheduler::Count(const Node& node, int sign) {
  for (const auto& [name, devices] : node.devices) {
    Kind& kind = kinds_[name];
    if (node.usable) {
      kind.usable += sign * devices;
    } else {
      (node.drained ? kind.drained : kind.away) += sign * devices;
    }
  }
  if (!node.usable) return;
  for (const auto& [name, devices] : node.held) kinds_[name].held += sign * devices;
}

/// Adds (or takes away) the devices that a running job holds.
void Scheduler::Hold(const RunningJob& job, int sign) {
  Held& held = held_[job.tenant];
  held.jobs += sign;
  for (const auto& [name, devices] : job.devices) {
    held.devices += sign * devices;
    const auto node = nodes_.find(name);
    if (node == nodes_.end()) continue;
    node->second.held[job.device_kind] += sign * devices;
    if (node->second.usable) kinds_[job.device_kind].held += sign * devices;
    if (sign > 0) {
      node->second.jobs.insert(job.job_id);
    } else {
      node->second.jobs.erase(job.job_id);
    }
  }
  if (held.jobs == 0) held_.erase(job.tenant);
}

void Scheduler::ShowFree(const Node& node) {
  for (const auto& [name, devices] : node.devices) {
    std::vector<partitioner::DeviceView> free;
    for (const NodeDevice& device : node.view.devices) {
      if (!node.usable || !device.free || device.kind != name) continue;
      free.push_back({node.view.node, device.name, device.link_domains});
    }
    kinds_[name].pool.SetHost(node.view.node, std::move(free));
  }
}

/// Works out what the node counts for, after a change or when a window opens or closes.
void Scheduler::Index(Node& node, Time now) {
  const std::string& name = node.view.node;
  if (node.view.window && node.view.window->until <= now) node.view.window.reset();
  const bool in_window = node.view.window && node.view.window->from <= now;
  node.drained = node.view.drained || in_window;
  node.usable = node.view.ready && !node.drained;
  node.devices.clear();
  for (const NodeDevice& device : node.view.devices) ++node.devices[device.kind];
  if (node.view.window) {
    windows_.insert(name);
  } else {
    windows_.erase(name);
  }
  if (node.drained && node.view.evict) {
    evicting_.insert(name);
  } else {
    evicting_.erase(name);
  }
  Count(node, 1);
  ShowFree(node);
}

void Scheduler::PutNode(const NodeView& view, Time now) {
  Node fresh{.view = view};
  if (const auto known = nodes_.find(view.node); known != nodes_.end()) {
    fresh.jobs = known->second.jobs;
    fresh.held = known->second.held;
    RemoveNode(view.node);
  } else {
    // Jobs may have been named before their node.
    for (const auto& [id, job] : running_) {
      const auto here = job.devices.find(view.node);
      if (here == job.devices.end()) continue;
      fresh.jobs.insert(id);
      fresh.held[job.device_kind] += here->second;
    }
  }
  Node& node = nodes_[view.node] = std::move(fresh);
  Index(node, now);
}

void Scheduler::RemoveNode(const std::string& name) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end()) return;
  Count(known->second, -1);
  for (const auto& [kind, devices] : known->second.devices) kinds_[kind].pool.SetHost(name, {});
  windows_.erase(name);
  evicting_.erase(name);
  nodes_.erase(known);
}

void Scheduler::PassWindows(Time now) {
  const std::set<std::string> names = windows_;
  for (const std::string& name : names) {
    Node& node = nodes_.at(name);
    const Window& window = *node.view.window;
    const bool inside = window.from <= now && now < window.until;
    if (window.until > now && inside == (node.drained && !node.view.drained)) continue;
    Count(node, -1);
    Index(node, now);
  }
}

void Scheduler::PutPending(const PendingJob& job) {
  ForgetRunning(job.job_id);
  if (const auto known = pending_.find(job.job_id);
      known != pending_.end() && known->second != job.device_kind) {
    Remove(job.job_id);
  }
  pending_[job.job_id] = job.device_kind;
  kinds_[job.device_kind].queue.Put(job);
}

void Scheduler::PutRunning(const RunningJob& job) {
  Remove(job.job_id);
  running_[job.job_id] = job;
  Kind& kind = kinds_[job.device_kind];
  kind.ends.insert(EndOf(job));
  if (job.preemptible && !job.yielding && job.preemptions < policy_.max_preemptions) {
    kind.preemptible[job.priority].insert({job.started, job.job_id});
  }
  Hold(job, 1);
}

void Scheduler::ForgetRunning(const std::string& job_id) {
  const auto known = running_.find(job_id);
  if (known == running_.end()) return;
  const RunningJob& job = known->second;
  Kind& kind = kinds_[job.device_kind];
  kind.ends.erase(EndOf(job));
  if (const auto level = kind.preemptible.find(job.priority); level != kind.preemptible.end()) {
    level->second.erase({job.started, job.job_id});
    if (level->second.empty()) kind.preemptible.erase(level);
  }
  Hold(job, -1);
  running_.erase(known);
}

void Scheduler::Remove(const std::string& job_id) {
  ForgetRunning(job_id);
  const auto known = pending_.find(job_id);
  if (known == pending_.end()) return;
  Kind& kind = kinds_[known->second];
  kind.queue.Remove(job_id);
  if (kind.head == job_id) kind.head.clear();
  pending_.erase(known);
}

bool Scheduler::pending(const std::string& job_id) const {
  return pending_.contains(job_id);
}

std::string Scheduler::HeadOf(const std::string& device_kind) const {
  const auto kind = kinds_.find(device_kind);
  return kind == kinds_.end() ? "" : kind->second.head;
}

/// Devices of a running job that come back to usable nodes without a window.
int Scheduler::Returning(const RunningJob& job) const {
  int devices = 0;
  for (const auto& [name, count] : job.devices) {
    const auto node = nodes_.find(name);
    if (node != nodes_.end() && node->second.usable && !windows_.contains(name)) devices += count;
  }
  return devices;
}

/// Devices of usable nodes without a window that nobody holds any more and that are not free yet:
/// their processes are ending.
int Scheduler::Releasing(const std::string& device_kind) const {
  const Kind& kind = kinds_.at(device_kind);
  int devices = kind.usable - kind.pool.free() - kind.held;
  for (const std::string& name : windows_) {
    const Node& node = nodes_.at(name);
    const auto all = node.devices.find(device_kind);
    if (!node.usable || all == node.devices.end()) continue;
    const auto held = node.held.find(device_kind);
    devices -= all->second - kind.pool.FreeOn(name) - (held == node.held.end() ? 0 : held->second);
  }
  return std::max(devices, 0);
}

/// Usable nodes that the job may not be started on, for it could still run when their window opens.
std::set<std::string> Scheduler::Closed(const PendingJob& job, Time now) const {
  std::set<std::string> closed;
  for (const std::string& name : windows_) {
    const Node& node = nodes_.at(name);
    if (!node.usable) continue;
    const bool ends_before = job.max_run.count() > 0 &&
                             now + job.max_run + policy_.release_grace <= node.view.window->from;
    if (!ends_before) closed.insert(name);
  }
  return closed;
}

int Scheduler::FreeFor(const Kind& kind, const std::set<std::string>& closed) const {
  int free = kind.pool.free();
  for (const std::string& name : closed) free -= kind.pool.FreeOn(name);
  return free;
}

}  // namespace tundish::scheduler
