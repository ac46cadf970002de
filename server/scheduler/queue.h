#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/types.h"

namespace tundish::scheduler {

/// What a visitor of the queue wants next.
enum class Next {
  kContinue,
  /// No more jobs of this tenant.
  kSkipTenant,
  kStop,
};

/// The waiting jobs of one device kind in order of precedence: overdue ones by age; then by
/// priority; inside a priority the tenant that holds least for its weight comes first, its jobs by
/// age. Not thread-safe.
class Queue {
 public:
  /// Inserts, or replaces by job_id.
  void Put(const PendingJob& job);
  void Remove(const std::string& job_id);
  /// Jobs that have waited since `limit` or longer become overdue.
  void Age(Time limit);

  const PendingJob* Find(const std::string& job_id) const;
  bool overdue(const std::string& job_id) const;
  std::size_t size() const { return jobs_.size(); }
  bool empty() const { return jobs_.empty(); }
  /// Since when the job waits that becomes overdue next; max if there is none.
  Time oldest() const { return by_wait_.empty() ? Time::max() : by_wait_.begin()->first; }

  /// Devices held for its weight.
  using ShareOf = std::function<double(const std::string& tenant)>;
  using Visit = std::function<Next(const PendingJob&)>;
  /// Visits jobs in order of precedence; of the level that holds `first` (may be empty) that one
  /// comes first. `share` is asked anew after every visit of the tenant. The visitor may not
  /// change the queue.
  void ForEach(const std::string& first, const ShareOf& share, const Visit& visit) const;

 private:
  /// 0 and the negated priority; overdue jobs come before, with −1.
  using LevelKey = std::pair<int, int>;
  using ByAge = std::set<std::pair<Time, std::string>>;
  /// Overdue jobs of all tenants are under "".
  using Level = std::map<std::string, ByAge>;

  struct Entry {
    PendingJob job;
    bool overdue = false;
  };

  void Link(const Entry& entry);
  void Unlink(const Entry& entry);
  static LevelKey KeyOf(const Entry& entry);
  bool VisitLevel(const Level& level, const PendingJob* first, std::set<std::string>& skipped,
                  const ShareOf& share, const Visit& visit) const;

  std::map<std::string, Entry> jobs_;
  std::map<LevelKey, Level> levels_;
  /// Jobs that are not overdue.
  std::set<std::pair<Time, std::string>> by_wait_;
};

}  // namespace tundish::scheduler
