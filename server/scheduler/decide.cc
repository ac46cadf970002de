#include <algorithm>
#include <cstdint>
#include <utility>

#include "server/scheduler/scheduler.h"

namespace tundish::scheduler {
namespace {

/// A head that gets its devices so soon anyway makes nobody yield.
constexpr seconds kNotWorthYielding{60};

int Needed(const PendingJob& job) {
  return static_cast<int>(std::min<std::int64_t>(std::int64_t{job.tensor} * job.data, 1 << 30));
}

}  // namespace

/// One walk over a kind's queue.
struct Scheduler::Round {
  Time now;
  Decision& decision;
  const PendingJob* head = nullptr;
  Promise promise;
  int looked_at = 0;
};

bool Scheduler::NeverMayHold(const PendingJob& job) const {
  const Share& share = ShareOf(job.tenant);
  return share.max_devices > 0 && Needed(job) > share.max_devices;
}

/// `held`: what the tenant holds, or is promised, besides.
bool Scheduler::MayHold(const PendingJob& job, const Held& held) const {
  const Share& share = ShareOf(job.tenant);
  return (share.max_devices == 0 || held.devices + Needed(job) <= share.max_devices) &&
         (share.max_jobs == 0 || held.jobs + 1 <= share.max_jobs);
}

/// Running jobs give devices back by their limits, in that order. Devices on nodes with a window
/// are left out: whether the head may use them depends on when it starts.
Scheduler::Promise Scheduler::Promised(const Kind& kind, const PendingJob& head, Time now) const {
  const int needed = Needed(head);
  int have = kind.pool.free();
  for (const std::string& name : windows_) have -= kind.pool.FreeOn(name);
  Promise promise;
  // What is on its way out comes within the grace or a little later.
  const int releasing = Releasing(head.device_kind);
  bool certain = releasing == 0;
  have += releasing;
  if (have >= needed) promise.at = now + policy_.release_grace;
  for (const auto& [end, job_id] : kind.ends) {
    if (end == Time::max()) break;
    const int returning = Returning(running_.at(job_id));
    if (returning == 0) continue;
    const bool yields = end == Time::min();
    certain = certain && !yields;
    const Time at = std::max(yields ? now : end, now) + policy_.release_grace;
    if (promise.at != Time::max() && at > promise.at) break;  // what ends together counts together
    have += returning;
    if (have >= needed) promise.at = at;
  }
  if (promise.at != Time::max() && certain) promise.spare = have - needed;
  return promise;
}

Time Scheduler::Reservation(const PendingJob& head, Time now) const {
  const auto kind = kinds_.find(head.device_kind);
  return kind == kinds_.end() ? Time::max() : Promised(kind->second, head, now).at;
}

Next Scheduler::Visit(Kind& kind, const PendingJob& job, Round& round) {
  const int needed = Needed(job);
  if (needed > kind.usable || NeverMayHold(job)) return Next::kContinue;
  // Heads of other kinds keep what their tenant may still hold, too.
  Held held = HeldBy(job.tenant);
  for (const auto& [name, other] : kinds_) {
    const PendingJob* head = &other == &kind ? nullptr : other.queue.Find(other.head);
    if (head == nullptr || head->tenant != job.tenant) continue;
    held.devices += Needed(*head);
    ++held.jobs;
  }
  if (!MayHold(job, held)) return Next::kSkipTenant;
  if (round.head != nullptr &&
      (kind.pool.free() == 0 || ++round.looked_at > policy_.backfill_depth)) {
    return Next::kStop;
  }
  const std::set<std::string> closed = Closed(job, round.now);
  bool ends_before = true;
  if (FreeFor(kind, closed) < needed) {
    if (round.head != nullptr) return Next::kContinue;
    int open = kind.usable;
    for (const std::string& name : closed) {
      const auto& devices = nodes_.at(name).devices;
      const auto here = devices.find(job.device_kind);
      if (here != devices.end()) open -= here->second;
    }
    if (needed > open) return Next::kContinue;  // it waits for windows, which others need not
    round.head = &job;
    round.promise = Promised(kind, job, round.now);
    return kind.pool.free() == 0 ? Next::kStop : Next::kContinue;
  }
  if (round.head != nullptr) {
    const Promise& promise = round.promise;
    ends_before = job.max_run.count() > 0 && promise.at != Time::max() &&
                  round.now + job.max_run + policy_.release_grace <= promise.at;
    Held with_head = held;
    if (round.head->tenant == job.tenant) {
      with_head.devices += Needed(*round.head);
      ++with_head.jobs;
    }
    // A head whose tenant may hold no more for a while would lose its place.
    if (!MayHold(job, with_head)) return Next::kContinue;
    if (!ends_before && needed > promise.spare) return Next::kContinue;
  }
  auto placement = kind.pool.Place(job.tensor, job.data, closed);
  if (!placement.ok()) return Next::kContinue;  // degrees below 1: validation refuses them
  if (!ends_before) round.promise.spare -= needed;
  Begin(job, *placement, round.now);
  round.decision.starts.push_back(
      {job.job_id, *std::move(placement), round.head == nullptr ? "" : round.head->job_id});
  return Next::kContinue;
}

/// The job runs from here on; it stays in the queue until the walk is over. Whether it may be
/// preempted is known with the next PutRunning: a run this young may not.
void Scheduler::Begin(const PendingJob& job, const partitioner::Placement& placement, Time now) {
  RunningJob running{.job_id = job.job_id,
                     .tenant = job.tenant,
                     .priority = job.priority,
                     .device_kind = job.device_kind,
                     .started = now,
                     .ends_by = job.max_run.count() > 0 ? now + job.max_run : Time::max()};
  std::set<std::string> touched;
  for (const partitioner::Place& place : placement.places) {
    ++running.devices[place.node];
    touched.insert(place.node);
    auto& devices = nodes_.at(place.node).view.devices;
    std::ranges::find(devices, place.device, &NodeDevice::name)->free = false;
  }
  for (const std::string& name : touched) ShowFree(nodes_.at(name));
  Kind& kind = kinds_.at(job.device_kind);
  kind.ends.insert({running.ends_by, job.job_id});
  Hold(running, 1);
  running_[job.job_id] = std::move(running);
}

void Scheduler::Expire(const Kind& kind, Time now, Decision& decision) {
  for (const auto& [end, job_id] : kind.ends) {
    if (end == Time::min()) continue;
    if (end > now) {
      decision.next = std::min(decision.next, end);
      return;
    }
    decision.expired.push_back(job_id);
  }
}

/// The least important and youngest runs that are enough, if there are enough.
void Scheduler::Preempt(Kind& kind, const PendingJob& head, Time now, Decision& decision) {
  if (kind.preemptible.empty() || kind.preemptible.begin()->first >= head.priority) return;
  const Promise promise = Promised(kind, head, now);
  if (promise.at <= now + policy_.release_grace + kNotWorthYielding) return;
  int missing = Needed(head) - FreeFor(kind, Closed(head, now)) - Releasing(head.device_kind);
  for (const auto& [end, job_id] : kind.ends) {
    if (end != Time::min()) break;
    missing -= Returning(running_.at(job_id));
  }
  std::vector<std::pair<std::string, int>> victims;
  for (const auto& [priority, runs] : kind.preemptible) {
    if (priority >= head.priority || missing <= 0) break;
    for (auto run = runs.rbegin(); run != runs.rend() && missing > 0; ++run) {
      if (run->first + policy_.protected_run > now) {
        decision.next = std::min(decision.next, run->first + policy_.protected_run);
        continue;
      }
      const int returning = Returning(running_.at(run->second));
      if (returning == 0) continue;
      missing -= returning;
      victims.emplace_back(run->second, returning);
    }
  }
  if (missing > 0) return;
  // The last ones may have made earlier ones unnecessary.
  std::erase_if(victims, [&missing](const auto& victim) {
    const bool spare = missing + victim.second <= 0;
    if (spare) missing += victim.second;
    return spare;
  });
  for (const auto& [job_id, devices] : victims) {
    RunningJob job = running_.at(job_id);
    job.yielding = true;
    PutRunning(job);
    decision.yields.push_back({job_id, "preempted", head.job_id});
  }
}

void Scheduler::Evict(Time now, Decision& decision) {
  for (const std::string& name : evicting_) {
    const Node& node = nodes_.at(name);
    const std::set<std::string> jobs = node.jobs;
    for (const std::string& job_id : jobs) {
      RunningJob job = running_.at(job_id);
      if (std::exchange(job.yielding, true)) continue;
      PutRunning(job);
      decision.yields.push_back(
          {job_id, node.view.drained ? "node_drained" : "maintenance_window", name});
    }
  }
}

void Scheduler::DecideKind(Kind& kind, Time now, Decision& decision) {
  kind.queue.Age(now - policy_.overdue_after);
  if (kind.queue.oldest() != Time::max()) {
    decision.next = std::min(decision.next, kind.queue.oldest() + policy_.overdue_after);
  }
  const std::size_t before = decision.starts.size();
  Round round{.now = now, .decision = decision};
  kind.queue.ForEach(
      kind.head, [this](const std::string& tenant) { return Load(tenant); },
      [&](const PendingJob& job) { return Visit(kind, job, round); });
  kind.head = round.head == nullptr ? "" : round.head->job_id;
  for (std::size_t i = before; i < decision.starts.size(); ++i) {
    kind.queue.Remove(decision.starts[i].job_id);
    pending_.erase(decision.starts[i].job_id);
  }
  if (round.head != nullptr) Preempt(kind, *round.head, now, decision);
  Expire(kind, now, decision);  // last: the limits of what has just started count, too
}

Decision Scheduler::Decide(Time now) {
  Decision decision;
  PassWindows(now);
  Evict(now, decision);
  for (auto& [name, kind] : kinds_) DecideKind(kind, now, decision);
  for (const std::string& name : windows_) {
    const Window& window = *nodes_.at(name).view.window;
    decision.next = std::min(decision.next, window.from > now ? window.from : window.until);
  }
  return decision;
}

}  // namespace tundish::scheduler
