#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/store/write_batch.h"
#include "tundish/v1/job.pb.h"
#include "tundish/v1/node.pb.h"

namespace tundish::jobs {

struct Job;

/// A message for an agent.
struct Order {
  std::string node;
  v1::CoordinatorMessage message;
};

/// A folder below the artifact root of which only these entries are to stay.
struct Sweep {
  std::string folder;
  std::vector<std::string> keep;
};

/// What one input did: writes that must be durable before anything of the rest may leave. Collected
/// by the pure part of the core, carried out by Core::Commit. Jobs named here outlive it.
class Changes {
 public:
  /// Which records of a job have to be written; the latest contents count.
  struct Dirty {
    bool job = false;
    bool progress = false;
    bool arrangement = false;
  };

  void TouchJob(Job& job) { dirty_[&job].job = true; }
  void TouchProgress(Job& job) { dirty_[&job].progress = true; }
  void TouchArrangement(Job& job) { dirty_[&job].arrangement = true; }

  /// Goes to the store and then to the job's readers. The seq is taken already.
  void Publish(Job& job, v1::JobUpdate update);
  void Send(std::string node, v1::CoordinatorMessage message) {
    orders.push_back({std::move(node), std::move(message)});
  }

  bool empty() const {
    return dirty_.empty() && orders.empty() && updates.empty() && acks.empty() && writes.empty() &&
           obsolete_folders.empty() && sweeps.empty();
  }

  /// Calls `act(job)` for every job of which a record was touched.
  template <class Act>
  void ForEachTouched(Act act) const {
    for (const auto& [job, dirty] : dirty_) act(*job);
  }

  /// Serializes the touched records into `writes`. Call once, at the end.
  void Seal();

  store::WriteBatch writes;
  std::vector<Order> orders;
  std::map<std::string, std::vector<v1::JobUpdate>> updates;
  /// Highest report number to acknowledge: (node, worker_id) → number.
  std::map<std::pair<std::string, std::string>, uint64_t> acks;
  /// Folders below the artifact root that no record names any more.
  std::vector<std::string> obsolete_folders;
  std::vector<Sweep> sweeps;
  /// Devices, nodes or jobs changed in a way that may let a job start.
  bool schedule = false;

 private:
  std::map<Job*, Dirty> dirty_;
};

}  // namespace tundish::jobs
