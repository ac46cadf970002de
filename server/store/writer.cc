#include "server/store/writer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace tundish::store {
namespace {

/// One transaction takes at most this many batches, so that the first of them need not wait for
/// ever.
constexpr std::size_t kMostBatches = 1024;

/// By WriteBatch::Kind. Parameters: its texts, its numbers, its blob.
constexpr std::array kStatements = {
    "INSERT INTO jobs (job_id, tenant, state, submitted_ms, blob) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (job_id) DO UPDATE SET tenant = excluded.tenant, state = excluded.state, "
    "submitted_ms = excluded.submitted_ms, blob = excluded.blob",
    "INSERT INTO progress (job_id, step, blob) VALUES (?, ?, ?) "
    "ON CONFLICT (job_id) DO UPDATE SET step = excluded.step, blob = excluded.blob",
    "INSERT OR REPLACE INTO arrangements (job_id, reason, job_epoch, start_step, blob) "
    "VALUES (?, ?, ?, ?, ?)",
    "INSERT INTO updates (job_id, seq, kind, blob) VALUES (?, ?, ?, ?)",
    "INSERT INTO requests (tenant, request_id, job_id, spec_hash, blob) VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO nodes (node, drained, blob) VALUES (?, ?, ?)",
    "DELETE FROM nodes WHERE node = ?",
    "INSERT OR REPLACE INTO checkpoints (job_id, path, step, blob) VALUES (?, ?, ?, ?)",
    "DELETE FROM checkpoints WHERE job_id = ? AND step = ?",
    "INSERT OR REPLACE INTO incidents (job_id, number, blob) VALUES (?, ?, ?)",
    "INSERT INTO audit (actor, action, subject, time_ms, blob) VALUES (?, ?, ?, ?, ?)",
    "INSERT OR REPLACE INTO settings (kind, name, blob) VALUES (?, ?, ?)",
    "DELETE FROM settings WHERE kind = ? AND name = ?",
};

}  // namespace

absl::StatusOr<std::unique_ptr<Writer>> Writer::Start(Database database, std::size_t queue_bytes) {
  std::vector<Statement> statements;
  for (const char* sql : kStatements) {
    auto statement = database.Prepare(sql);
    if (!statement.ok()) return statement.status();
    statements.push_back(*std::move(statement));
  }
  std::unique_ptr<Writer> writer(
      new Writer(std::move(database), std::move(statements), queue_bytes));
  writer->thread_ = std::thread([raw = writer.get()] { raw->Run(); });
  return writer;
}

Writer::Writer(Database database, std::vector<Statement> statements, std::size_t queue_bytes)
    : database_(std::move(database)),
      statements_(std::move(statements)),
      queue_bytes_(queue_bytes) {}

Writer::~Writer() {
  Close();
}

void Writer::Commit(WriteBatch batch, Done done) {
  std::unique_lock lock(mutex_);
  if (closing_) {
    lock.unlock();
    done(absl::FailedPreconditionError("the store is closed"));
    return;
  }
  absl::Status status;
  if (waiting_bytes_ + batch.bytes() > queue_bytes_) {
    status = absl::ResourceExhaustedError(
        fmt::format("{} bytes wait to be written, at most {} may: the disk is too slow or full",
                    waiting_bytes_, queue_bytes_));
    // Takes its turn all the same: answers come in order. Its data need not wait with it.
    batch = WriteBatch();
  }
  waiting_bytes_ += batch.bytes();
  ++submitted_;
  queue_.push_back({std::move(batch), std::move(done), std::move(status)});
  wake_.notify_one();
}

void Writer::WhenIdle(std::function<void(Database*)> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!closing_) {
      idle_work_.push_back(std::move(work));
      wake_.notify_one();
      return;
    }
  }
  work(nullptr);
}

void Writer::Flush() {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = submitted_;
  answered_changed_.wait(lock, [&] { return answered_ >= target; });
}

void Writer::Close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Writer::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closing_ || !queue_.empty() || !idle_work_.empty(); });
    if (queue_.empty() && !idle_work_.empty()) {
      const std::function<void(Database*)> work = std::move(idle_work_.front());
      idle_work_.pop_front();
      const bool closing = closing_;
      lock.unlock();
      work(closing ? nullptr : &*database_);
      lock.lock();
      continue;
    }
    if (queue_.empty()) break;
    const std::size_t count = std::min(queue_.size(), kMostBatches);
    std::vector<Pending> group(std::make_move_iterator(queue_.begin()),
                               std::make_move_iterator(queue_.begin() + count));
    queue_.erase(queue_.begin(), queue_.begin() + count);
    for (const Pending& pending : group) waiting_bytes_ -= pending.batch.bytes();
    lock.unlock();
    CommitGroup(group);
    for (Pending& pending : group) pending.done(std::move(pending.status));
    lock.lock();
    answered_ += count;
    answered_changed_.notify_all();
  }
  statements_.clear();
  database_.reset();
}

void Writer::CommitGroup(std::vector<Pending>& group) {
  absl::Status status = WriteGroup(group);
  if (status.ok()) return;
  // Nothing of the group was written. Some errors end the transaction by themselves.
  if (database_->in_transaction()) (void)database_->Execute("ROLLBACK");
  for (Pending& pending : group) pending.status.Update(status);
}

absl::Status Writer::WriteGroup(std::vector<Pending>& group) {
  if (absl::Status begun = database_->Execute("BEGIN IMMEDIATE"); !begun.ok()) return begun;
  for (Pending& pending : group) {
    if (!pending.status.ok() || pending.batch.empty()) continue;
    if (absl::Status fatal = ApplyOrUndo(pending); !fatal.ok()) return fatal;
  }
  return database_->Execute("COMMIT");
}

/// A batch that breaks a unique key fails alone; any other error fails the group.
absl::Status Writer::ApplyOrUndo(Pending& pending) {
  if (absl::Status status = database_->Execute("SAVEPOINT batch"); !status.ok()) return status;
  absl::Status status = Apply(pending.batch);
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  if (!status.ok()) {
    pending.status = status;
    if (absl::Status undone = database_->Execute("ROLLBACK TO batch"); !undone.ok()) return undone;
  }
  return database_->Execute("RELEASE batch");
}

absl::Status Writer::Apply(const WriteBatch& batch) {
  static_assert(kStatements.size() ==
                static_cast<std::size_t>(WriteBatch::Kind::kDeleteSetting) + 1);
  for (const WriteBatch::Write& write : batch.writes_) {
    Statement& statement = statements_[static_cast<std::size_t>(write.kind)];
    for (const std::string& text : write.texts) statement.Bind(text);
    for (const std::int64_t number : write.numbers) statement.Bind(number);
    const bool deletes = write.kind == WriteBatch::Kind::kDeleteNode ||
                         write.kind == WriteBatch::Kind::kDeleteCheckpoint ||
                         write.kind == WriteBatch::Kind::kDeleteSetting;
    if (!deletes) statement.BindBlob(write.blob);
    if (absl::Status status = statement.Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tundish::store
