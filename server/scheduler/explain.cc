#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "server/scheduler/scheduler.h"

// Why a job waits. Not part of a decision: it may walk over the whole queue.
namespace tundish::scheduler {
namespace {

/// Jobs before the one asked for beyond which its start is not estimated.
constexpr int kMostEstimated = 2000;

std::int64_t Needed(const PendingJob& job) {
  return std::int64_t{job.tensor} * job.data;
}

std::string Devices(std::int64_t count, std::string_view kind) {
  return fmt::format("{} {} device{}", count, kind, count == 1 ? "" : "s");
}

/// Devices that become free, by time; a run without a limit gives nothing back.
class Timeline {
 public:
  Timeline(Time now, std::int64_t free) : now_(now), free_(free) {}
  void Add(Time at, std::int64_t devices) { ends_.push({at, devices}); }

  /// Takes `needed` devices as soon as they are there; false if they never are.
  bool Take(std::int64_t needed) {
    while (free_ < needed) {
      if (ends_.empty()) return false;
      now_ = std::max(now_, ends_.top().first);
      free_ += ends_.top().second;
      ends_.pop();
    }
    free_ -= needed;
    return true;
  }
  Time now() const { return now_; }

 private:
  using End = std::pair<Time, std::int64_t>;
  Time now_;
  std::int64_t free_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace

WaitCode Scheduler::Judge(const Kind& kind, const PendingJob& job, Time now) const {
  if (NeverMayHold(job) || !MayHold(job, HeldBy(job.tenant))) return WaitCode::kQuota;
  if (kind.usable == 0) return WaitCode::kNoNode;
  if (Needed(job) > kind.usable) return WaitCode::kImpossibleNow;
  std::int64_t open = kind.usable;
  for (const std::string& name : Closed(job, now)) {
    const auto& devices = nodes_.at(name).devices;
    const auto here = devices.find(job.device_kind);
    if (here != devices.end()) open -= here->second;
  }
  if (Needed(job) > open) return WaitCode::kWindow;
  return kind.head.empty() || kind.head == job.job_id ? WaitCode::kDevicesBusy
                                                      : WaitCode::kBehindJob;
}

/// The queue carried out in order, every run as long as its limit.
std::optional<Time> Scheduler::Expected(const Kind& kind, const PendingJob& job, Time now) const {
  Timeline timeline(now, kind.pool.free());
  if (const int releasing = Releasing(job.device_kind); releasing > 0) {
    timeline.Add(now + policy_.release_grace, releasing);
  }
  for (const auto& [end, job_id] : kind.ends) {
    if (end == Time::max()) break;
    timeline.Add(std::max(end == Time::min() ? now : end, now) + policy_.release_grace,
                 Returning(running_.at(job_id)));
  }
  std::optional<Time> expected;
  int seen = 0;
  kind.queue.ForEach(
      kind.head, [this](const std::string& tenant) { return Load(tenant); },
      [&](const PendingJob& other) {
        if (Needed(other) > kind.usable || NeverMayHold(other)) return Next::kContinue;
        if (++seen > kMostEstimated || !timeline.Take(Needed(other))) return Next::kStop;
        if (other.job_id == job.job_id) {
          expected = timeline.now();
          return Next::kStop;
        }
        if (other.max_run.count() > 0) {
          timeline.Add(timeline.now() + other.max_run + policy_.release_grace, Needed(other));
        }
        return Next::kContinue;
      });
  return expected;
}

namespace {

/// "; 4 more on drained nodes" where that helps to understand.
std::string Elsewhere(int drained, int away) {
  std::string text;
  if (drained > 0) text += fmt::format("; {} more on drained nodes", drained);
  if (away > 0) text += fmt::format("; {} more on nodes that are unreachable", away);
  return text;
}

/// The jobs that hold most.
std::string Holders(const std::map<std::string, RunningJob>& running, const std::string& kind) {
  constexpr std::size_t kMost = 3;
  std::vector<std::pair<int, const RunningJob*>> holders;
  for (const auto& [id, job] : running) {
    if (job.device_kind != kind) continue;
    int devices = 0;
    for (const auto& [node, count] : job.devices) devices += count;
    holders.emplace_back(-devices, &job);
  }
  std::ranges::stable_sort(holders, {}, &std::pair<int, const RunningJob*>::first);
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, holders.size()); ++i) {
    const RunningJob& job = *holders[i].second;
    text += fmt::format("{}job {} holds {}", i == 0 ? "" : ", ", job.job_id, -holders[i].first);
    if (job.yielding) {
      text += " and is giving them back";
    } else if (job.ends_by != Time::max()) {
      text += fmt::format(" until {:%Y-%m-%d %H:%M:%S} UTC at the latest",
                          fmt::gmtime(std::chrono::system_clock::to_time_t(job.ends_by)));
    }
  }
  if (holders.size() > kMost)
    text += fmt::format(", {} more jobs the rest", holders.size() - kMost);
  return text;
}

}  // namespace

Wait Scheduler::Explain(const std::string& job_id, Time now) const {
  const Kind& kind = kinds_.at(pending_.at(job_id));
  const PendingJob& job = *kind.queue.Find(job_id);
  Wait wait{.code = Judge(kind, job, now)};
  bool found = false;
  kind.queue.ForEach(
      kind.head, [this](const std::string& tenant) { return Load(tenant); },
      [&](const PendingJob& other) {
        found = found || other.job_id == job_id;
        if (!found) ++wait.position;
        return found ? Next::kStop : Next::kContinue;
      });
  const std::string needs = "needs " + Devices(Needed(job), job.device_kind);
  const int free = kind.pool.free();
  const std::string counts = fmt::format("{}, {} {} free of {} in all", needs, free,
                                         free == 1 ? "is" : "are", kind.usable);
  switch (wait.code) {
    case WaitCode::kNoNode:
      wait.reason =
          fmt::format("{}, no ready node offers any{}", needs, Elsewhere(kind.drained, kind.away));
      return wait;
    case WaitCode::kImpossibleNow:
      wait.reason = fmt::format("{}: more than the cluster has{}", counts,
                                Elsewhere(kind.drained, kind.away));
      return wait;
    case WaitCode::kQuota: {
      const Share& share = ShareOf(job.tenant);
      const Held held = HeldBy(job.tenant);
      wait.reason = fmt::format(
          "{}, and tenant {} holds {} of {} devices in {} of {} jobs", needs, job.tenant,
          held.devices, share.max_devices > 0 ? std::to_string(share.max_devices) : "any",
          held.jobs, share.max_jobs > 0 ? std::to_string(share.max_jobs) : "any");
      return wait;
    }
    case WaitCode::kWindow:
      wait.reason = fmt::format(
          "{}, but nodes with a maintenance window ahead take only jobs whose "
          "scheduling.max_run_seconds ends before it",
          counts);
      return wait;
    case WaitCode::kBehindJob:
      wait.reason = fmt::format("{}, and job {} comes first", counts, kind.head);
      break;
    case WaitCode::kDevicesBusy: {
      const std::string holders = Holders(running_, job.device_kind);
      wait.reason =
          fmt::format("{}: {}", counts, holders.empty() ? "other jobs hold the rest" : holders);
      break;
    }
  }
  wait.expected = Expected(kind, job, now);
  return wait;
}

}  // namespace tundish::scheduler
