#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/partitioner/pool.h"
#include "server/scheduler/queue.h"
#include "server/scheduler/types.h"

namespace tundish::scheduler {

/// Decides which pending jobs start now, which running ones yield or end, and says why the others
/// wait. Holds what it decides on and follows changes one by one, so that a decision looks only at
/// what it needs. Pure but for that: no clock, no I/O, the same calls give the same decisions. Not
/// thread-safe.
///
/// All ranks of a job or none. Precedence: see Queue. The first job that does not fit is the head
/// of its device kind: devices that become free are kept for it, and it stays the head of its
/// priority until it starts. Others start past it only where that cannot delay it (back-fill):
/// either they end, by their limit, before the moment at which the limits of the running jobs
/// guarantee the head its devices, or they use devices that it will not need then. Jobs that cannot
/// run on what the cluster has, or whose tenant may not hold more, reserve nothing.
///
/// A head of higher priority makes running jobs yield: the least important, youngest runs, only if
/// they are enough, never ones whose run is young or that have yielded often (Policy).
class Scheduler {
 public:
  explicit Scheduler(const Policy& policy = {}) : policy_(policy) {}

  const Policy& policy() const { return policy_; }
  void SetShare(const std::string& tenant, const Share& share) { shares_[tenant] = share; }
  void SetDefaultShare(const Share& share) { policy_.default_share = share; }
  /// The default share counts again.
  void RemoveShare(const std::string& tenant) { shares_.erase(tenant); }
  const Share& ShareOf(const std::string& tenant) const;
  /// Devices and jobs a tenant holds now.
  struct Held {
    int devices = 0;
    int jobs = 0;
  };
  Held HeldBy(const std::string& tenant) const;

  /// Inserts or replaces by name.
  void PutNode(const NodeView& view, Time now);
  void RemoveNode(const std::string& node);
  /// The job waits, runs, or does neither (any more). Each call says all that holds for it.
  void PutPending(const PendingJob& job);
  void PutRunning(const RunningJob& job);
  void Remove(const std::string& job_id);

  /// Started jobs run, and devices they got are taken, from here on; yields count as asked for.
  Decision Decide(Time now);

  /// Why a pending job waits; the job must be one. See Wait.
  Wait Explain(const std::string& job_id, Time now) const;
  bool pending(const std::string& job_id) const;
  /// When the head of a kind starts at the latest by the limits of running jobs; max: they do not
  /// tell. For explanations and tests.
  Time Reservation(const PendingJob& head, Time now) const;
  /// The job that devices of the kind are kept for; empty: none.
  std::string HeadOf(const std::string& device_kind) const;

 private:
  /// What is known of one device kind.
  struct Kind {
    /// Free devices of usable nodes.
    partitioner::Pool pool;
    /// Devices on usable nodes, on drained ones, on nodes that are away.
    int usable = 0;
    int drained = 0;
    int away = 0;
    /// Devices on usable nodes that running jobs hold.
    int held = 0;
    Queue queue;
    /// Running jobs by the end of their limit.
    std::set<std::pair<Time, std::string>> ends;
    /// Running jobs that may be preempted: priority → (start, job), the youngest last.
    std::map<int, std::set<std::pair<Time, std::string>>> preemptible;
    std::string head;
  };
  struct Node {
    NodeView view;
    /// Kind → devices; and whether they count as usable.
    std::map<std::string, int> devices;
    bool usable = false;
    bool drained = false;
    /// Running jobs with devices here, and how many they hold, by kind.
    std::set<std::string> jobs;
    std::map<std::string, int> held;
  };
  /// The guarantee of a head: at `at` it has its devices, and `spare` more are free.
  struct Promise {
    Time at = Time::max();
    int spare = 0;
  };
  /// One walk over a kind's queue.
  struct Round;

  bool MayHold(const PendingJob& job, const Held& held) const;
  bool NeverMayHold(const PendingJob& job) const;
  double Load(const std::string& tenant) const;

  void Count(const Node& node, int sign);
  void Hold(const RunningJob& job, int sign);
  void Index(Node& node, Time now);
  void ShowFree(const Node& node);
  void PassWindows(Time now);
  void ForgetRunning(const std::string& job_id);

  std::set<std::string> Closed(const PendingJob& job, Time now) const;
  int FreeFor(const Kind& kind, const std::set<std::string>& closed) const;
  int Returning(const RunningJob& job) const;
  int Releasing(const std::string& device_kind) const;
  Promise Promised(const Kind& kind, const PendingJob& head, Time now) const;

  void DecideKind(Kind& kind, Time now, Decision& decision);
  Next Visit(Kind& kind, const PendingJob& job, Round& round);
  void Begin(const PendingJob& job, const partitioner::Placement& placement, Time now);
  void Preempt(Kind& kind, const PendingJob& head, Time now, Decision& decision);
  void Evict(Time now, Decision& decision);
  static void Expire(const Kind& kind, Time now, Decision& decision);

  WaitCode Judge(const Kind& kind, const PendingJob& job, Time now) const;
  std::optional<Time> Expected(const Kind& kind, const PendingJob& job, Time now) const;

  Policy policy_;
  std::map<std::string, Share> shares_;
  std::map<std::string, Held> held_;
  std::map<std::string, Kind> kinds_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, RunningJob> running_;
  /// Pending job → device kind.
  std::map<std::string, std::string> pending_;
  /// Nodes with a window that is not over.
  std::set<std::string> windows_;
  /// Drained or in-window nodes whose jobs shall go.
  std::set<std::string> evicting_;
};

}  // namespace tundish::scheduler
