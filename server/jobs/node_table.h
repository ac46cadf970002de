#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "server/jobs/settings.h"
#include "server/scheduler/types.h"
#include "tundish/v1/node.pb.h"
#include "tundish/v1/state.pb.h"

namespace tundish::jobs {

/// The coordinator's end of one agent's stream. Called on the core loop.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  /// False if the stream has ended or the agent reads too slowly.
  virtual bool Send(v1::CoordinatorMessage message) = 0;
  virtual void End(const absl::Status& status) = 0;
};

/// How a node's data interface is measured when it joins: its peers are asked, one after the other.
struct LinkCheck {
  /// The order in force; empty: none.
  std::string probe_id;
  std::chrono::steady_clock::time_point limit;
  /// Peers asked since the node joined or since the last verdict.
  std::set<std::string> asked;
  /// When a node with a problem is measured again.
  std::chrono::steady_clock::time_point again;
};

/// Who holds a device: a rank being started, running or being ended.
struct Occupant {
  std::string job_id;
  std::string worker_id;
};

struct Node {
  std::string name;
  std::string incarnation;
  v1::Register registration;
  bool drained = false;
  /// Null while the agent is away.
  std::shared_ptr<AgentLink> link;
  std::chrono::steady_clock::time_point last_heard;
  std::chrono::system_clock::time_point last_heard_wall;
  /// Known from before a restart of the coordinator: not lost before this time.
  std::chrono::steady_clock::time_point grace_until;
  /// Nothing heard for Settings::unreachable_after, or no stream.
  bool unreachable = true;
  /// Device name → occupant.
  std::map<std::string, Occupant> occupied;
  LinkCheck link_check;
  /// Why it gets no ranks although it is there; empty: nothing is wrong.
  std::string problem;
  /// Jobs whose data its agent checks.
  std::set<std::string> checks;

  bool ready() const { return link != nullptr && !unreachable; }
  /// May get new ranks, as far as the node itself is concerned.
  bool usable() const { return !drained && problem.empty() && link_check.probe_id.empty(); }
};

/// Every node ever registered, and who holds its devices. Lives on the core loop.
class NodeTable {
 public:
  /// From the store, at the start: known, not connected, heard of just now; `grace` to come back.
  void Load(const v1::NodeRecord& record, Now now, std::chrono::milliseconds grace);

  /// Takes a registration; occupancy is left for the caller to reconcile.
  /// Errors: InvalidArgument for an empty or overlong name, no incarnation, more than 1024 devices,
  /// or a device listed twice.
  static absl::Status CheckRegistration(const v1::AgentMessage& message);
  Node& Register(const v1::AgentMessage& message, std::shared_ptr<AgentLink> link, Now now);

  /// Null if unknown.
  Node* Find(std::string_view name);
  std::map<std::string, Node, std::less<>>& nodes() { return nodes_; }

  void Occupy(std::string_view node, const std::vector<std::string>& devices, Occupant occupant);
  /// Frees what `worker_id` holds on `node`. True if it held anything.
  bool Free(std::string_view node, std::string_view worker_id);

  /// What the scheduler decides on.
  std::vector<scheduler::NodeView> View() const;
  v1::ListNodesResponse Describe() const;
  static v1::NodeRecord Record(const Node& node);

 private:
  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace tundish::jobs
