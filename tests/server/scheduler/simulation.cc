#include "tests/server/scheduler/simulation.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <fmt/core.h>

#include "server/scheduler/scheduler.h"

namespace tundish::scheduler {
namespace {

using namespace std::chrono_literals;

const Policy kPolicy{.protected_run = 300s,
                     .max_preemptions = 3,
                     .overdue_after = 24h,
                     .release_grace = 30s,
                     .backfill_depth = 200};
constexpr seconds kLongestRun = 2h;
/// After it is overdue a job waits for those that were overdue before it.
constexpr seconds kWaitBound = 24h + 100 * kLongestRun;

struct SimJob {
  PendingJob pending;
  bool preemptible = true;
  int preemptions = 0;
  /// What it would take undisturbed, and has left.
  seconds left{0};
  // While it runs:
  bool running = false;
  bool yielding = false;
  Time started;
  Time ends_by = Time::max();
  std::vector<partitioner::Place> places;
  /// Counts runs, so that the end planned for an earlier one is known as such.
  int run = 0;
};

enum class Kind { kRunEnds, kYielded, kDevicesFree };

struct Event {
  Kind kind;
  std::string job;
  int run = 0;
  std::vector<partitioner::Place> places;
};

/// A promise to the head of a kind, and since when it holds.
struct Promise {
  std::string job;
  Time at = Time::max();
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 10; ++i) {
      NodeView node{.node = fmt::format("n{}", i)};
      const std::string kind = i >= 7 ? "cuda" : "cpu";
      const int devices = 2 << Random(3);
      for (int d = 0; d < devices; ++d) {
        node.devices.push_back(
            {fmt::format("{}:{}", kind, d), kind, {fmt::format("chip:{}", d / 2)}, true});
      }
      nodes_[node.node] = node;
    }
    shares_ = {{"a", {}},
               {"b", {.weight = 3}},
               {"c", {.max_devices = 12}},
               {"d", {.max_devices = 24, .max_jobs = 4}}};
    Restart();
  }

  Outcome Run(std::int64_t events) {
    Outcome& outcome = outcome_;
    while (outcome.events < events && outcome.broken.empty()) {
      ++outcome.events;
      Step();
      if (outcome.broken.empty()) Decide();
      if (!outcome.broken.empty()) {
        outcome.broken += fmt::format(" (event {})", outcome.events);
      }
    }
    outcome.utilisation = usable_sum_ == 0 ? 0 : held_sum_ / usable_sum_;
    return outcome;
  }

 private:
  int Random(int below) { return static_cast<int>(random_() % below); }

  template <class... Args>
  void Fail(fmt::format_string<Args...> text, Args&&... args) {
    if (outcome_.broken.empty()) {
      outcome_.broken = fmt::format(text, std::forward<Args>(args)...);
    }
  }

  static int Needed(const PendingJob& job) { return job.tensor * job.data; }

  bool Usable(const NodeView& node) const {
    return node.ready && !node.drained &&
           !(node.window && node.window->from <= now_ && now_ < node.window->until);
  }

  NodeDevice& DeviceAt(const partitioner::Place& place) {
    return *std::ranges::find(nodes_.at(place.node).devices, place.device, &NodeDevice::name);
  }

  /// A coordinator that crashed: everything from the truth.
  void Restart() {
    scheduler_.emplace(kPolicy);
    for (const auto& [name, node] : nodes_) scheduler_->PutNode(node, now_);
    for (const auto& [tenant, share] : shares_) scheduler_->SetShare(tenant, share);
    for (const auto& [id, job] : jobs_) Tell(job);
    promises_.clear();  // the head is found anew
  }

  void Tell(const SimJob& job) {
    if (!job.running) {
      scheduler_->PutPending(job.pending);
      return;
    }
    RunningJob running{.job_id = job.pending.job_id,
                       .tenant = job.pending.tenant,
                       .priority = job.pending.priority,
                       .device_kind = job.pending.device_kind,
                       .started = job.started,
                       .ends_by = job.ends_by,
                       .preemptible = job.preemptible,
                       .preemptions = job.preemptions,
                       .yielding = job.yielding};
    for (const partitioner::Place& place : job.places) ++running.devices[place.node];
    scheduler_->PutRunning(running);
  }

  void TellNode(const std::string& name) { scheduler_->PutNode(nodes_.at(name), now_); }

  // What happens.

  void Step() {
    const int dice = Random(1000);
    if (dice < 2) {
      ++outcome_.restarts;
      Restart();
    } else if (dice < 12) {
      ChangeNode();
    } else if (dice < 20) {
      CancelOne();
    } else if (dice < 22) {
      ChangeShare();
    } else if (dice < 400 && waiting_ < 60) {
      Submit();
    } else {
      Advance();
    }
  }

  void Submit() {
    SimJob job;
    PendingJob& pending = job.pending;
    pending.job_id = fmt::format("j{:07}", ++last_job_);
    pending.tenant = std::string(1, static_cast<char>('a' + Random(4)));
    pending.priority = Random(4) == 0 ? Random(5) : 0;
    pending.submitted = now_;
    pending.waiting_since = now_;
    pending.tensor = 1 << Random(3);
    pending.data = 1 + Random(Random(6) == 0 ? 8 : 3);
    pending.device_kind = Random(3) == 0 ? "cuda" : "cpu";
    job.left = seconds(30 + Random(Random(5) == 0 ? 7000 : 1500));
    if (Random(4) != 0) pending.max_run = job.left + seconds(Random(600)) - 60s;
    if (pending.max_run < 0s) pending.max_run = 10s;
    job.preemptible = Random(5) != 0;
    jobs_[pending.job_id] = job;
    ++waiting_;
    Tell(job);
  }

  /// To the next planned event, or a little on.
  void Advance() {
    const Time soon = now_ + seconds(1 + Random(120));
    const Time wake = std::min(soon, wake_);
    if (plan_.empty() || plan_.begin()->first > wake) {
      now_ = std::max(now_, wake);
      return;
    }
    now_ = std::max(now_, plan_.begin()->first);
    const Event event = plan_.begin()->second;
    plan_.erase(plan_.begin());
    const auto job = jobs_.find(event.job);
    switch (event.kind) {
      case Kind::kRunEnds:
        if (job != jobs_.end() && job->second.running && job->second.run == event.run) {
          EndRun(job->second, false);
        }
        return;
      case Kind::kYielded:
        if (job != jobs_.end() && job->second.running && job->second.run == event.run) {
          EndRun(job->second, true);
        }
        return;
      case Kind::kDevicesFree:
        for (const partitioner::Place& place : event.places) {
          DeviceAt(place).free = true;
          --releasing_;
        }
        for (const partitioner::Place& place : event.places) TellNode(place.node);
        return;
    }
  }

  void EndRun(SimJob& job, bool goes_on) {
    // Processes take a moment to go.
    const seconds delay(Random(3) == 0 ? Random(20) : 0);
    releasing_ += static_cast<int>(job.places.size());
    plan_.insert({now_ + delay, {Kind::kDevicesFree, "", 0, job.places}});
    const seconds ran = std::chrono::duration_cast<seconds>(now_ - job.started);
    job.places.clear();
    job.running = false;
    const std::string id = job.pending.job_id;
    if (goes_on && job.left > ran) {
      job.left -= ran;
      if (job.pending.max_run > 0s) {
        job.pending.max_run = std::max(1s, job.pending.max_run - ran);
      }
      job.yielding = false;
      job.pending.waiting_since = now_;
      ++waiting_;
      Tell(job);
    } else {
      scheduler_->Remove(id);
      jobs_.erase(id);
    }
  }

  void CancelOne() {
    if (jobs_.empty()) return;
    auto job = jobs_.begin();
    std::advance(job, Random(static_cast<int>(jobs_.size())));
    if (job->second.running) {
      EndRun(job->second, false);
      return;
    }
    --waiting_;
    scheduler_->Remove(job->first);
    jobs_.erase(job);
  }

  void ChangeNode() {
    auto node = nodes_.begin();
    std::advance(node, Random(static_cast<int>(nodes_.size())));
    NodeView& view = node->second;
    const int dice = Random(4);
    if (dice == 0) {
      view.ready = !view.ready || Random(3) != 0;
    } else if (dice == 1) {
      view.drained = !view.drained;
      view.evict = view.drained && Random(2) == 0;
    } else if (dice == 2 && !view.window) {
      const Time from = now_ + seconds(Random(4000));
      view.window = {from, from + seconds(60 + Random(2000))};
      view.evict = Random(2) == 0;
    } else {
      view.ready = true;
      view.drained = false;
      view.window.reset();
    }
    TellNode(node->first);
    promises_.clear();  // capacity came or went: what was promised no longer binds
  }

  void ChangeShare() {
    Share& share = shares_.at(std::string(1, static_cast<char>('a' + Random(2))));
    share.weight = 1 + Random(4);
    for (const auto& [tenant, each] : shares_) scheduler_->SetShare(tenant, each);
  }

  // What the scheduler makes of it.

  void Decide() {
    std::map<std::string, std::pair<std::string, Time>> before;
    for (const char* kind : {"cpu", "cuda"}) {
      const std::string head = scheduler_->HeadOf(kind);
      if (head.empty()) continue;
      before[kind] = {head, scheduler_->Reservation(jobs_.at(head).pending, now_)};
    }
    CountHeld();
    const Decision decision = scheduler_->Decide(now_);
    wake_ = decision.next;
    for (const Start& start : decision.starts) CheckStart(start);
    for (const Yield& yield : decision.yields) CheckYield(yield);
    CheckHeads(decision, before);
    CheckOrder(decision);
    for (const Start& start : decision.starts) CarryOut(start);
    for (const Yield& yield : decision.yields) CarryOut(yield);
    for (const std::string& id : decision.expired) {
      const auto job = jobs_.find(id);
      if (job == jobs_.end() || !job->second.running || job->second.ends_by > now_) {
        Fail("{} expired although it has time left", id);
        return;
      }
      ++outcome_.expired;
      EndRun(job->second, false);
    }
    CheckDevices();
    CheckWaits();
  }

  void CheckStart(const Start& start) {
    const auto found = jobs_.find(start.job_id);
    if (found == jobs_.end() || found->second.running)
      return Fail("{} does not wait", start.job_id);
    const PendingJob& job = found->second.pending;
    std::set<std::pair<std::string, std::string>> used;
    for (const partitioner::Place& place : start.placement.places) {
      used.insert({place.node, place.device});
      const NodeView& node = nodes_.at(place.node);
      const NodeDevice& device = DeviceAt(place);
      if (!device.free) return Fail("{} of {} given twice", place.device, place.node);
      if (device.kind != job.device_kind) return Fail("wrong kind for {}", job.job_id);
      if (!Usable(node))
        return Fail("{} started on {}, which is not usable", job.job_id, place.node);
      if (node.window && now_ < node.window->from &&
          (job.max_run == 0s || now_ + job.max_run > node.window->from)) {
        return Fail("{} started into the window of {}", job.job_id, place.node);
      }
    }
    if (std::ssize(used) != Needed(job)) return Fail("partial gang of {}", job.job_id);
    for (const partitioner::Place& place : start.placement.places) DeviceAt(place).free = false;
    auto& held = held_[job.tenant];
    held.first += Needed(job);
    ++held.second;
    const Share& share = shares_.at(job.tenant);
    if ((share.max_devices > 0 && held.first > share.max_devices) ||
        (share.max_jobs > 0 && held.second > share.max_jobs)) {
      return Fail("{} exceeds the quota of {}", job.job_id, job.tenant);
    }
    outcome_.longest_wait_seconds =
        std::max(outcome_.longest_wait_seconds,
                 std::chrono::duration<double>(now_ - job.waiting_since).count());
  }

  void CheckYield(const Yield& yield) {
    const SimJob& job = jobs_.at(yield.job_id);
    if (!job.running || job.yielding) return Fail("{} yields twice", yield.job_id);
    if (yield.reason != "preempted") return;
    const SimJob& winner = jobs_.at(yield.beneficiary);
    if (winner.running) return Fail("{} yields to {}, which runs", yield.job_id, yield.beneficiary);
    if (winner.pending.priority <= job.pending.priority) {
      return Fail("{} yields to {}, which is not more important", yield.job_id, yield.beneficiary);
    }
    if (now_ - job.started < kPolicy.protected_run) return Fail("{} is too young", yield.job_id);
    if (!job.preemptible) return Fail("{} may not be preempted", yield.job_id);
    if (job.preemptions >= kPolicy.max_preemptions) return Fail("{} too often", yield.job_id);
    if (yielded_to_.contains({yield.beneficiary, yield.job_id})) {
      return Fail("{} and {} yield to each other", yield.job_id, yield.beneficiary);
    }
    yielded_to_.insert({yield.job_id, yield.beneficiary});
  }

  /// Back-fill does not move a head's guarantee, and a head starts by it.
  void CheckHeads(const Decision& decision,
                  const std::map<std::string, std::pair<std::string, Time>>& before) {
    for (const char* kind : {"cpu", "cuda"}) {
      bool others = false;
      for (const Start& start : decision.starts) {
        others =
            others || (start.past.empty() && jobs_.at(start.job_id).pending.device_kind == kind);
        Promise& promise = promises_[kind];
        if (start.job_id != promise.job) continue;
        if (now_ > promise.at) return Fail("head {} starts late", start.job_id);
      }
      const std::string head = scheduler_->HeadOf(kind);
      Promise& promise = promises_[kind];
      if (head.empty() || head != promise.job || others) promise = {head, Time::max()};
      if (head.empty()) continue;
      const Time at = scheduler_->Reservation(jobs_.at(head).pending, now_);
      const auto earlier = before.find(kind);
      if (!others && earlier != before.end() && earlier->second.first == head &&
          at > earlier->second.second) {
        return Fail("back-fill delays head {}", head);
      }
      // Of what is on its way out only the most it may take is known, not since when.
      if (at > promise.at && at > now_ + kPolicy.release_grace) {
        return Fail("the promise to head {} moved", head);
      }
      promise.at = std::min(promise.at, at);
    }
  }

  int LevelOf(const PendingJob& job) const {
    return job.waiting_since + kPolicy.overdue_after <= now_ ? 1000 : job.priority;
  }

  /// Whoever starts in turn has nobody above that could have.
  void CheckOrder(const Decision& decision) {
    if (decision.starts.empty()) return;
    std::map<std::string, int> usable;
    bool windows = false;
    for (const auto& [name, node] : nodes_) {
      windows = windows || node.window.has_value();
      if (Usable(node)) usable[node.devices[0].kind] += static_cast<int>(node.devices.size());
    }
    if (windows) return;
    std::set<std::string> started;
    for (const Start& start : decision.starts) started.insert(start.job_id);
    for (const Start& start : decision.starts) {
      const PendingJob& job = jobs_.at(start.job_id).pending;
      if (!start.past.empty()) continue;
      for (const auto& [id, other] : jobs_) {
        const PendingJob& above = other.pending;
        const bool limited = above.tenant == "c" || above.tenant == "d";
        if (other.running || started.contains(id) || limited ||
            above.device_kind != job.device_kind || LevelOf(above) <= LevelOf(job) ||
            Needed(above) > usable[job.device_kind]) {
          continue;
        }
        return Fail("{} starts although {} comes first", start.job_id, id);
      }
    }
  }

  void CarryOut(const Start& start) {
    SimJob& job = jobs_.at(start.job_id);
    job.running = true;
    job.yielding = false;
    job.started = now_;
    job.ends_by = job.pending.max_run > 0s ? now_ + job.pending.max_run : Time::max();
    job.places = start.placement.places;
    ++job.run;
    --waiting_;
    ++outcome_.started;
    if (!start.past.empty()) ++outcome_.backfilled;
    // Some end early, and some would run into their limit.
    const seconds length = Random(4) == 0 ? job.left / (1 + Random(4)) : job.left;
    plan_.insert(
        {now_ + std::min(length + 1s, kLongestRun), {Kind::kRunEnds, start.job_id, job.run, {}}});
    std::set<std::string> names;
    for (const partitioner::Place& place : job.places) names.insert(place.node);
    for (const std::string& name : names) TellNode(name);
    Tell(job);
  }

  void CarryOut(const Yield& yield) {
    SimJob& job = jobs_.at(yield.job_id);
    job.yielding = true;
    if (yield.reason == "preempted") {
      ++job.preemptions;
      ++outcome_.preempted;
    } else {
      ++outcome_.evicted;
    }
    plan_.insert({now_ + seconds(Random(8)), {Kind::kYielded, yield.job_id, job.run, {}}});
    Tell(job);
  }

  int CountHeld() {
    held_.clear();
    int all = 0;
    for (const auto& [id, job] : jobs_) {
      if (!job.running) continue;
      all += static_cast<int>(job.places.size());
      held_[job.pending.tenant].first += static_cast<int>(job.places.size());
      ++held_[job.pending.tenant].second;
    }
    return all;
  }

  /// Every device is free, held by one run, or its processes are ending; the scheduler agrees.
  void CheckDevices() {
    int taken = 0;
    double usable = 0;
    for (const auto& [name, node] : nodes_) {
      for (const NodeDevice& device : node.devices) taken += device.free ? 0 : 1;
      if (Usable(node)) usable += static_cast<double>(node.devices.size());
    }
    const int held = CountHeld();
    if (taken != held + releasing_) {
      return Fail("{} devices are taken, {} held and {} ending", taken, held, releasing_);
    }
    for (const auto& [tenant, of] : held_) {
      const Scheduler::Held known = scheduler_->HeldBy(tenant);
      if (known.devices != of.first || known.jobs != of.second) {
        return Fail("tenant {} holds {}, the scheduler thinks {}", tenant, of.first, known.devices);
      }
    }
    held_sum_ += held;
    usable_sum_ += usable;
  }

  void CheckWaits() {
    if (outcome_.events % 100 != 0) return;
    std::map<std::string, int> usable;
    for (const auto& [name, node] : nodes_) {
      if (Usable(node) && !node.window) {
        usable[node.devices[0].kind] += static_cast<int>(node.devices.size());
      }
    }
    for (const auto& [id, job] : jobs_) {
      const PendingJob& pending = job.pending;
      const Share& share = shares_.at(pending.tenant);
      const bool possible = Needed(pending) <= usable[pending.device_kind] &&
                            (share.max_devices == 0 || Needed(pending) <= share.max_devices);
      if (!job.running && possible && now_ - pending.waiting_since > kWaitBound) {
        return Fail("{} starves", id);
      }
    }
  }

  std::mt19937_64 random_;
  Time now_{24h * 20000};
  Time wake_ = Time::max();
  std::map<std::string, NodeView> nodes_;
  std::map<std::string, Share> shares_;
  std::map<std::string, SimJob> jobs_;
  std::multimap<Time, Event> plan_;
  std::optional<Scheduler> scheduler_;
  std::map<std::string, Promise> promises_;
  std::set<std::pair<std::string, std::string>> yielded_to_;
  /// Tenant → devices and jobs that run.
  std::map<std::string, std::pair<int, int>> held_;
  int last_job_ = 0;
  int waiting_ = 0;
  int releasing_ = 0;
  double held_sum_ = 0;
  double usable_sum_ = 0;
  Outcome outcome_;
};

}  // namespace

Outcome Simulate(std::uint64_t seed, std::int64_t events) {
  return Simulation(seed).Run(events);
}

}  // namespace tundish::scheduler
