#include "server/store/pruning.h"

#include <optional>
#include <vector>

#include <fmt/core.h>
#include <google/protobuf/util/time_util.h>

#include "tundish/v1/job.pb.h"

namespace tundish::store {
namespace {

using google::protobuf::util::TimeUtil;

std::int64_t Milliseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

bool Stays(const v1::JobUpdate& update, const PruneRequest& request) {
  switch (update.body_case()) {
    case v1::JobUpdate::kMetric:
      return request.keep_every_step > 0 && update.metric().step() % request.keep_every_step == 0;
    case v1::JobUpdate::kLog:
      return request.keep_logs;
    case v1::JobUpdate::kEvent:
      return request.keep_events;
    default:
      return true;
  }
}

/// Collects neighbours that go into ranges. A range begins with the first update that goes and
/// takes up older ranges of the same reason.
class Ranges {
 public:
  explicit Ranges(std::string reason) : reason_(std::move(reason)) {}

  void Go(const v1::JobUpdate& update) { Extend(update.seq(), update.seq(), update); }

  void Pass(const v1::JobUpdate& update) {
    if (update.has_dropped() && update.dropped().reason() == reason_) {
      Extend(update.dropped().first(), update.dropped().last(), update);
    } else {
      Close();
    }
  }

  void Close() {
    // An old range by itself is not written again.
    if (open_ && rows_ > 1) closed_.push_back(*open_);
    if (open_ && rows_ == 1 && !only_old_) closed_.push_back(*open_);
    open_.reset();
  }

  const std::vector<v1::JobUpdate>& closed() const { return closed_; }

 private:
  void Extend(std::uint32_t first, std::uint32_t last, const v1::JobUpdate& update) {
    if (!open_) {
      rows_ = 0;
      only_old_ = update.has_dropped();
      open_.emplace();
      open_->mutable_dropped()->set_first(first);
      open_->mutable_dropped()->set_reason(reason_);
    }
    ++rows_;
    // Stored under its last number: a reader that stands inside the range finds it too.
    open_->set_seq(last);
    open_->mutable_dropped()->set_last(last);
    *open_->mutable_time() = update.time();
  }

  const std::string reason_;
  std::optional<v1::JobUpdate> open_;
  int rows_ = 0;
  bool only_old_ = false;
  std::vector<v1::JobUpdate> closed_;
};

absl::Status Replace(Database& database, const std::string& job_id,
                     const std::vector<v1::JobUpdate>& ranges) {
  auto erase = database.Prepare("DELETE FROM updates WHERE job_id = ? AND seq BETWEEN ? AND ?");
  if (!erase.ok()) return erase.status();
  auto insert = database.Prepare("INSERT INTO updates (job_id, seq, kind, blob) VALUES (?,?,?,?)");
  if (!insert.ok()) return insert.status();
  for (const v1::JobUpdate& range : ranges) {
    const std::int64_t first = range.dropped().first();
    const std::int64_t last = range.dropped().last();
    if (absl::Status status = erase->Bind(job_id).Bind(first).Bind(last).Run(); !status.ok()) {
      return status;
    }
    const std::string blob = range.SerializeAsString();
    insert->Bind(job_id).Bind(last).Bind(std::int64_t{range.body_case()}).BindBlob(blob);
    if (absl::Status status = insert->Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<PruneResult> PruneInside(Database& database, const PruneRequest& request) {
  auto rows = database.Prepare(
      "SELECT blob FROM updates WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?");
  if (!rows.ok()) return rows.status();
  auto newest = database.Prepare("SELECT max(seq) FROM updates WHERE job_id = ?");
  if (!newest.ok()) return newest.status();
  const auto found = newest->Bind(request.job_id).Step();
  if (!found.ok()) return found.status();
  const auto last_seq = static_cast<std::uint32_t>(newest->Number(0));

  rows->Bind(request.job_id)
      .Bind(std::int64_t{request.after_seq})
      .Bind(std::int64_t{request.most_rows});
  PruneResult result{.through_seq = request.after_seq, .done = true};
  Ranges ranges(request.reason);
  const std::int64_t before = Milliseconds(request.before);
  for (int seen = 0;; ++seen) {
    const auto more = rows->Step();
    if (!more.ok()) return more.status();
    if (!*more) {
      result.done = seen < request.most_rows;
      break;
    }
    const std::string_view blob = rows->Bytes(0);
    v1::JobUpdate update;
    if (!update.ParseFromArray(blob.data(), static_cast<int>(blob.size()))) {
      return absl::DataLossError(
          fmt::format("an update of job {} is not what was written", request.job_id));
    }
    if (TimeUtil::TimestampToMilliseconds(update.time()) >= before) break;
    result.through_seq = update.seq();
    if (Stays(update, request) || update.seq() == last_seq) {
      ranges.Pass(update);
    } else {
      ++result.removed;
      ranges.Go(update);
    }
  }
  ranges.Close();
  if (absl::Status status = Replace(database, request.job_id, ranges.closed()); !status.ok()) {
    return status;
  }
  return result;
}

/// Runs `act` between BEGIN and COMMIT, or undoes it.
template <class Act>
absl::Status InTransaction(Database& database, Act act) {
  absl::Status status = database.Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = act();
  if (status.ok()) status = database.Execute("COMMIT");
  if (!status.ok() && database.in_transaction()) (void)database.Execute("ROLLBACK");
  return status;
}

}  // namespace

absl::StatusOr<PruneResult> Prune(Database& database, const PruneRequest& request) {
  absl::StatusOr<PruneResult> result;
  const absl::Status status = InTransaction(database, [&] {
    result = PruneInside(database, request);
    return result.status();
  });
  if (!status.ok()) return status;
  return result;
}

absl::Status ForgetJob(Database& database, const std::string& job_id) {
  return InTransaction(database, [&] {
    for (const char* table :
         {"jobs", "progress", "arrangements", "updates", "requests", "checkpoints", "incidents"}) {
      auto erase = database.Prepare(fmt::format("DELETE FROM {} WHERE job_id = ?", table));
      if (!erase.ok()) return erase.status();
      if (absl::Status status = erase->Bind(job_id).Run(); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status PruneAudit(Database& database, std::chrono::system_clock::time_point before) {
  auto erase = database.Prepare(
      "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE time_ms < ? LIMIT 5000)");
  if (!erase.ok()) return erase.status();
  return erase->Bind(Milliseconds(before)).Run();
}

}  // namespace tundish::store
