#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tundish/v1/rank.pb.h"

namespace tundish::rendezvous {

/// Bounds per job_epoch, checked before anything is kept.
struct Limits {
  std::size_t key_bytes = 256;
  std::size_t value_bytes = 64 * 1024;
  std::size_t keys = 16 * 1024;
  /// Keys and values together.
  std::size_t total_bytes = 32 * 1024 * 1024;
  std::size_t waits = 16 * 1024;
};

/// The key-value table in which the ranks of one arrangement find each other, fenced by (job,
/// job_epoch): at most one job_epoch of a job is open, calls of any other get ABORTED with the
/// current one. Single-threaded: lives on the core loop. Replies are called from within the table's
/// methods, after the table is consistent again; they may call the table, but not destroy it.
class StoreTable {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(absl::StatusOr<v1::StoreReply>)>;

  explicit StoreTable(Limits limits = {}) : limits_(limits) {}

  /// Opens `job_epoch` for these workers and fences every older one. Opening the open job_epoch
  /// again changes nothing; opening one that is fenced is a broken invariant.
  void Open(const std::string& job_id, std::uint32_t job_epoch,
            const std::vector<std::string>& worker_ids);

  /// Ends every job_epoch below `current`: pending waits and all later calls of them get ABORTED
  /// that names `current`, whose Open may come later. Does nothing if `current` is not newer.
  void Fence(const std::string& job_id, std::uint32_t current);

  /// The job has ended: its waits get ABORTED, its keys go, later calls get NOT_FOUND.
  void Close(const std::string& job_id);

  /// One call of a rank. `done` is called exactly once: at once, or for a StoreGet when the key
  /// appears, the wait expires (DEADLINE_EXCEEDED) or the job_epoch is fenced (ABORTED).
  ///   set     keeps the value.
  ///   get     answers value; a timeout of 0 answers at once.
  ///   add     adds to the decimal number under the key (absent = 0), answers the new number.
  ///   check   answers found.
  ///   delete  answers found = it was there.
  /// Errors: ABORTED (not the current job_epoch), NOT_FOUND (no such job), PERMISSION_DENIED (not a
  /// member), INVALID_ARGUMENT (key, timeout, no operation, add on something that is no number,
  /// overflow), RESOURCE_EXHAUSTED (a limit; names it).
  void Call(const v1::StoreRequest& request, Clock::time_point now, Done done);

  /// Ends every wait whose deadline is ≤ now.
  void ExpireWaits(Clock::time_point now);

  /// Earliest deadline of a wait; nothing when none waits.
  std::optional<Clock::time_point> NextDeadline() const;

  /// Waits pending over all jobs.
  std::size_t pending_waits() const { return deadlines_.size(); }

 private:
  struct Wait;
  using WaitList = std::list<Wait>;
  using Deadlines = std::multimap<Clock::time_point, WaitList::iterator>;
  using Result = absl::StatusOr<v1::StoreReply>;

  struct Job {
    std::uint32_t job_epoch = 0;
    bool open = false;
    std::unordered_set<std::string> members;
    std::unordered_map<std::string, std::string> values;
    /// Keys and values.
    std::size_t bytes = 0;
    WaitList waits;
  };

  struct Wait {
    /// Entries of an unordered_map stay where they are; a job's waits end before its entry does.
    Job* job;
    std::string key;
    Done done;
    Deadlines::iterator deadline;
  };

  absl::Status Admit(const v1::StoreRequest& request, const Job& job) const;
  absl::Status Put(Job& job, const std::string& key, std::string value);
  Result Add(Job& job, const std::string& key, std::int64_t amount);
  Result Delete(Job& job, const std::string& key);
  /// Answers at once, or keeps `done` and answers nothing.
  std::optional<Result> Get(Job& job, const v1::StoreRequest& request, Clock::time_point now,
                            Done& done);
  /// Makes `current` the job_epoch, not open yet. Returns the waits of the one before, to be ended
  /// with Over.
  std::vector<Done> Advance(Job& job, std::uint32_t current);
  Done EndWait(WaitList::iterator wait);
  std::vector<Done> TakeWaits(Job& job, const std::string& key);
  std::vector<Done> Clear(Job& job);

  Limits limits_;
  std::unordered_map<std::string, Job> jobs_;
  Deadlines deadlines_;
};

}  // namespace tundish::rendezvous
