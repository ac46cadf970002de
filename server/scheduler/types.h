#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/partitioner/partitioner.h"

namespace tundish::scheduler {

using Time = std::chrono::system_clock::time_point;
using std::chrono::seconds;

/// A job that has all it needs but devices.
struct PendingJob {
  std::string job_id;
  std::string tenant;
  /// Larger first.
  int priority = 0;
  Time submitted;
  int tensor = 1;
  int data = 1;
  /// "cpu", "cuda".
  std::string device_kind;
  /// Longest time it may still hold devices; 0: no limit.
  seconds max_run{0};
  /// Since when it waits for devices; later than `submitted` if it has run before.
  Time waiting_since;
  bool operator==(const PendingJob&) const = default;
};

/// A job that holds devices.
struct RunningJob {
  std::string job_id;
  std::string tenant;
  int priority = 0;
  std::string device_kind;
  /// When this run began.
  Time started;
  /// It ends by then, at the latest; max: no limit.
  Time ends_by = Time::max();
  bool preemptible = true;
  /// How often it has given its devices to another job.
  int preemptions = 0;
  /// Was asked to give its devices back and has not yet.
  bool yielding = false;
  /// Node → devices held there.
  std::map<std::string, int> devices;
  bool operator==(const RunningJob&) const = default;
};

struct NodeDevice {
  /// Device name, e.g. "cpu:0".
  std::string name;
  std::string kind;
  std::vector<std::string> link_domains;
  /// No rank holds it, nor is one being started or ended on it.
  bool free = true;
  bool operator==(const NodeDevice&) const = default;
};

/// A time in which a node gets no ranks: [from, until).
struct Window {
  Time from;
  Time until;
  bool operator==(const Window&) const = default;
};

struct NodeView {
  std::string node;
  /// Its agent is connected. Devices of other nodes count as not there.
  bool ready = true;
  /// Gets no new ranks.
  bool drained = false;
  std::vector<NodeDevice> devices;
  std::optional<Window> window;
  /// Jobs that run here while it is drained or in its window are asked to yield.
  bool evict = false;
  bool operator==(const NodeView&) const = default;
};

/// What one tenant may have.
struct Share {
  /// Share of the devices relative to other tenants of the same priority; more than 0.
  double weight = 1;
  /// Devices held at once, of all kinds; 0: no limit.
  int max_devices = 0;
  /// Jobs that hold devices at once; 0: no limit.
  int max_jobs = 0;
};

struct Policy {
  /// A run is not preempted before it is this old.
  seconds protected_run{600};
  /// A job is preempted so many times at most.
  int max_preemptions = 3;
  /// A job that has waited this long comes before every priority, the oldest first.
  seconds overdue_after{7 * 24 * 3600};
  /// From the order to end until devices are free, at most.
  seconds release_grace{30};
  /// Waiting jobs looked at for back-filling in one decision.
  int backfill_depth = 500;
  /// What tenants have that are not named.
  Share default_share;
};

enum class WaitCode {
  /// Would fit if devices that other jobs hold were free.
  kDevicesBusy,
  /// A more important or older job waits for the same devices.
  kBehindJob,
  /// More devices of the kind than all ready, undrained nodes have together. Does not hold up
  /// others.
  kImpossibleNow,
  /// No ready, undrained node offers a device of the kind.
  kNoNode,
  /// Its tenant holds as much as it may. Holds up the tenant's other jobs only.
  kQuota,
  /// The free devices have a maintenance window before the job's limit, or it has no limit.
  kWindow,
};

/// snake_case name for events and JSON: "devices_busy", "behind_job", "impossible_now", "no_node",
/// "quota", "maintenance_window".
std::string_view WaitCodeName(WaitCode code);

struct Start {
  std::string job_id;
  partitioner::Placement placement;
  /// The job it was back-filled past; empty if it was its turn.
  std::string past;
};

/// Asks a job to give its devices back at a step boundary, its state kept.
struct Yield {
  std::string job_id;
  /// "preempted", "node_drained" or "maintenance_window".
  std::string reason;
  /// The job that gets the devices, or the node.
  std::string beneficiary;
};

struct Decision {
  /// In order of precedence.
  std::vector<Start> starts;
  std::vector<Yield> yields;
  /// Jobs that have reached their limit and must end.
  std::vector<std::string> expired;
  /// When to decide again if nothing happens before; max: never.
  Time next = Time::max();
};

/// Why a pending job waits.
struct Wait {
  WaitCode code = WaitCode::kDevicesBusy;
  /// One sentence, e.g. "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has".
  std::string reason;
  /// Place among the waiting jobs of its device kind, from 1.
  int position = 1;
  /// When it starts at the latest, if the jobs before it have limits that tell.
  std::optional<Time> expected;
};

}  // namespace tundish::scheduler
