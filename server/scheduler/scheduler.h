#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "server/partitioner/partitioner.h"

namespace tundish::scheduler {

/// A job that has all it needs but devices.
struct PendingJob {
  std::string job_id;
  std::string tenant;
  /// Larger first.
  int priority = 0;
  std::chrono::system_clock::time_point submitted;
  int tensor = 1;
  int data = 1;
  /// "cpu", "cuda".
  std::string device_kind;
};

struct NodeDevice {
  /// Device name, e.g. "cpu:0".
  std::string name;
  std::string kind;
  std::vector<std::string> link_domains;
  /// No rank holds it, nor is one being started or ended on it.
  bool free = true;
};

struct NodeView {
  std::string node;
  /// Its agent is connected. Devices of other nodes count as not there.
  bool ready = true;
  /// Gets no new ranks.
  bool drained = false;
  std::vector<NodeDevice> devices;
};

struct Input {
  std::chrono::system_clock::time_point now;
  std::vector<PendingJob> pending;
  std::vector<NodeView> nodes;
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
};

/// snake_case name for events and JSON: "devices_busy", "behind_job", "impossible_now", "no_node".
std::string_view WaitCodeName(WaitCode code);

struct Start {
  std::string job_id;
  partitioner::Placement placement;
};

struct Waiting {
  std::string job_id;
  WaitCode code = WaitCode::kDevicesBusy;
  /// One sentence, e.g. "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has".
  std::string reason;
};

/// Every pending job is in exactly one of the two, each in order of precedence.
struct Decision {
  std::vector<Start> starts;
  std::vector<Waiting> waiting;
};

/// Which pending jobs start now, and why the others wait. Pure and deterministic.
/// All ranks of a job or none. Precedence: priority, then age, then job_id. A job that waits for
/// busy devices reserves all devices of its kind: a later job starts past it only on another kind,
/// so it is never delayed by one. Jobs that cannot run on what the cluster has now reserve nothing.
Decision Decide(const Input& input);

}  // namespace tundish::scheduler
