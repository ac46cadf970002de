#include "server/store/reader.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace tundish::store {
namespace {

absl::Status Closed() {
  return absl::FailedPreconditionError("the store is closed");
}

absl::Status Unreadable(std::string_view table, std::string_view key) {
  return absl::DataLossError(
      fmt::format("a row of table {} ({}) is not what was written: restore the database from a "
                  "backup",
                  table, key));
}

/// Calls `row(statement)` for every row of `sql`.
template <class Row>
absl::Status ForEach(Database& database, std::string_view sql, Row row) {
  auto statement = database.Prepare(sql);
  if (!statement.ok()) return statement.status();
  while (true) {
    const auto more = statement->Step();
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
    if (absl::Status status = row(*statement); !status.ok()) return status;
  }
}

template <class Message>
absl::Status Parse(const Statement& row, int column, std::string_view table, Message& message) {
  const std::string_view blob = row.Bytes(column);
  if (message.ParseFromArray(blob.data(), static_cast<int>(blob.size()))) return absl::OkStatus();
  return Unreadable(table, row.Bytes(0));
}

/// Rows (job_id, blob) of a table, handed to `add(job, message)`; rows of archived jobs are passed
/// over.
template <class Message, class Add>
absl::Status LoadPerJob(Database& database, State& state, std::string_view table,
                        std::string_view order, Add add) {
  return ForEach(database, fmt::format("SELECT job_id, blob FROM {} {}", table, order),
                 [&](const Statement& row) {
                   const auto job = state.jobs.find(std::string(row.Bytes(0)));
                   if (job == state.jobs.end()) return absl::OkStatus();
                   Message message;
                   absl::Status status = Parse(row, 1, table, message);
                   if (status.ok()) add(job->second, std::move(message));
                   return status;
                 });
}

absl::Status LoadJobs(Database& database, State& state) {
  absl::Status status = ForEach(
      database, "SELECT job_id, blob FROM jobs WHERE archived = 0", [&](const Statement& row) {
        return Parse(row, 1, "jobs", state.jobs[std::string(row.Bytes(0))].job);
      });
  if (!status.ok()) return status;
  status = LoadPerJob<v1::JobProgress>(
      database, state, "progress", "",
      [](StoredJob& job, v1::JobProgress progress) { job.progress = std::move(progress); });
  if (!status.ok()) return status;
  // A bare column beside max() is taken from the row that holds the maximum.
  status =
      ForEach(database, "SELECT job_id, blob, max(job_epoch) FROM arrangements GROUP BY job_id",
              [&](const Statement& row) {
                const auto job = state.jobs.find(std::string(row.Bytes(0)));
                if (job == state.jobs.end()) return absl::OkStatus();
                return Parse(row, 1, "arrangements", job->second.arrangement.emplace());
              });
  if (!status.ok()) return status;
  status = LoadPerJob<v1::Incident>(
      database, state, "incidents", "ORDER BY job_id, number",
      [](StoredJob& job, v1::Incident one) { job.incidents.push_back(std::move(one)); });
  if (!status.ok()) return status;
  status = LoadPerJob<v1::CheckpointRecord>(
      database, state, "checkpoints", "ORDER BY job_id, step",
      [](StoredJob& job, v1::CheckpointRecord one) { job.checkpoints.push_back(std::move(one)); });
  if (!status.ok()) return status;
  // One look at the end of each job's range instead of a walk over all updates.
  auto last = database.Prepare("SELECT max(seq) FROM updates WHERE job_id = ?");
  if (!last.ok()) return last.status();
  for (auto& [job_id, job] : state.jobs) {
    const auto row = last->Bind(job_id).Step();
    if (!row.ok()) return row.status();
    job.last_seq = static_cast<std::uint32_t>(last->Number(0));
    last->Reset();
  }
  return absl::OkStatus();
}

absl::Status LoadAll(Database& database, State& state) {
  if (absl::Status status = LoadJobs(database, state); !status.ok()) return status;
  absl::Status status =
      ForEach(database, "SELECT request_id, blob FROM requests", [&](const Statement& row) {
        return Parse(row, 1, "requests", state.requests.emplace_back());
      });
  if (!status.ok()) return status;
  status = ForEach(
      database, "SELECT node, blob FROM nodes ORDER BY node",
      [&](const Statement& row) { return Parse(row, 1, "nodes", state.nodes.emplace_back()); });
  if (!status.ok()) return status;
  return ForEach(database, "SELECT kind, name, blob FROM settings ORDER BY kind, name",
                 [&](const Statement& row) {
                   state.settings.push_back({std::string(row.Bytes(0)), std::string(row.Bytes(1)),
                                             std::string(row.Bytes(2))});
                   return absl::OkStatus();
                 });
}

}  // namespace

std::unique_ptr<Reader> Reader::Start(Database database) {
  std::unique_ptr<Reader> reader(new Reader(std::move(database)));
  reader->thread_ = std::thread([raw = reader.get()] { raw->Run(); });
  return reader;
}

Reader::~Reader() {
  Close();
}

void Reader::Close() {
  {
    const std::lock_guard lock(queue_mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(database_mutex_);
  database_.reset();
}

void Reader::Run() {
  std::unique_lock lock(queue_mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> read = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    read();
    lock.lock();
  }
}

absl::StatusOr<State> Reader::LoadState() {
  const std::lock_guard lock(database_mutex_);
  if (!database_) return Closed();
  if (absl::Status begun = database_->Execute("BEGIN"); !begun.ok()) return begun;
  State state;
  const absl::Status loaded = LoadAll(*database_, state);
  // Ends the snapshot; there is nothing to commit.
  (void)database_->Execute("ROLLBACK");
  if (!loaded.ok()) return loaded;
  return state;
}

Store::Updates Reader::ReadUpdates(const std::string& job_id, std::uint32_t after_seq, int limit) {
  const std::lock_guard lock(database_mutex_);
  if (!database_) return Closed();
  auto statement = database_->Prepare(
      "SELECT seq, blob FROM updates WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?");
  if (!statement.ok()) return statement.status();
  statement->Bind(job_id).Bind(std::int64_t{after_seq}).Bind(std::int64_t{std::max(limit, 0)});
  std::vector<v1::JobUpdate> updates;
  while (true) {
    const auto more = statement->Step();
    if (!more.ok()) return more.status();
    if (!*more) return updates;
    const absl::Status parsed = Parse(*statement, 1, "updates", updates.emplace_back());
    if (!parsed.ok()) return parsed;
  }
}

void Reader::ReadUpdatesAsync(std::string job_id, std::uint32_t after_seq, int limit,
                              Store::UpdatesDone done) {
  {
    const std::lock_guard lock(queue_mutex_);
    if (!closing_) {
      queue_.push_back([this, job_id = std::move(job_id), after_seq, limit,
                        done = std::move(done)] { done(ReadUpdates(job_id, after_seq, limit)); });
      wake_.notify_one();
      return;
    }
  }
  done(Closed());
}

}  // namespace tundish::store
