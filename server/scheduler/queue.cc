#include "server/scheduler/queue.h"

#include <tuple>

namespace tundish::scheduler {

Queue::LevelKey Queue::KeyOf(const Entry& entry) {
  return entry.overdue ? LevelKey{-1, 0} : LevelKey{0, -entry.job.priority};
}

void Queue::Link(const Entry& entry) {
  const PendingJob& job = entry.job;
  levels_[KeyOf(entry)][entry.overdue ? "" : job.tenant].insert({job.submitted, job.job_id});
  if (!entry.overdue) by_wait_.insert({job.waiting_since, job.job_id});
}

void Queue::Unlink(const Entry& entry) {
  const PendingJob& job = entry.job;
  const auto level = levels_.find(KeyOf(entry));
  const auto tenant = level->second.find(entry.overdue ? "" : job.tenant);
  tenant->second.erase({job.submitted, job.job_id});
  if (tenant->second.empty()) level->second.erase(tenant);
  if (level->second.empty()) levels_.erase(level);
  by_wait_.erase({job.waiting_since, job.job_id});
}

void Queue::Put(const PendingJob& job) {
  const auto known = jobs_.find(job.job_id);
  bool overdue = false;
  if (known != jobs_.end()) {
    overdue = known->second.overdue && known->second.job.waiting_since == job.waiting_since;
    Unlink(known->second);
  }
  Entry& entry = jobs_[job.job_id];
  entry = {job, overdue};
  Link(entry);
}

void Queue::Remove(const std::string& job_id) {
  const auto known = jobs_.find(job_id);
  if (known == jobs_.end()) return;
  Unlink(known->second);
  jobs_.erase(known);
}

void Queue::Age(Time limit) {
  while (!by_wait_.empty() && by_wait_.begin()->first <= limit) {
    Entry& entry = jobs_.at(by_wait_.begin()->second);
    Unlink(entry);
    entry.overdue = true;
    Link(entry);
  }
}

const PendingJob* Queue::Find(const std::string& job_id) const {
  const auto known = jobs_.find(job_id);
  return known == jobs_.end() ? nullptr : &known->second.job;
}

bool Queue::overdue(const std::string& job_id) const {
  const auto known = jobs_.find(job_id);
  return known != jobs_.end() && known->second.overdue;
}

void Queue::ForEach(const std::string& first, const ShareOf& share, const Visit& visit) const {
  const auto entry = jobs_.find(first);
  std::set<std::string> skipped;
  for (const auto& [key, level] : levels_) {
    const bool leads = entry != jobs_.end() && KeyOf(entry->second) == key;
    if (!VisitLevel(level, leads ? &entry->second.job : nullptr, skipped, share, visit)) return;
  }
}

/// False if the visitor has seen enough.
bool Queue::VisitLevel(const Level& level, const PendingJob* first, std::set<std::string>& skipped,
                       const ShareOf& share, const Visit& visit) const {
  if (first != nullptr) {
    const Next next = visit(*first);
    if (next == Next::kStop) return false;
    if (next == Next::kSkipTenant) skipped.insert(first->tenant);
  }
  // Tenants by what they hold; the next job of each.
  using Turn = std::tuple<double, Time, std::string>;
  std::set<Turn> turns;
  std::map<std::string, ByAge::const_iterator> cursors;
  const auto queue_up = [&](const std::string& tenant) {
    const ByAge& jobs = level.at(tenant);
    auto& cursor = cursors.at(tenant);
    if (cursor != jobs.end()) turns.insert({share(tenant), cursor->first, tenant});
  };
  for (const auto& [tenant, jobs] : level) {
    cursors[tenant] = jobs.begin();
    queue_up(tenant);
  }
  while (!turns.empty()) {
    const std::string tenant = std::get<2>(*turns.begin());
    turns.erase(turns.begin());
    auto& cursor = cursors.at(tenant);
    const PendingJob& job = jobs_.at(cursor->second).job;
    ++cursor;
    Next next = Next::kContinue;
    if (!skipped.contains(job.tenant) && &job != first) next = visit(job);
    if (next == Next::kStop) return false;
    if (next == Next::kSkipTenant) skipped.insert(job.tenant);
    // A level with one tenant needs no walk over jobs that will not be looked at.
    if (tenant.empty() || !skipped.contains(tenant)) queue_up(tenant);
  }
  return true;
}

}  // namespace tundish::scheduler
