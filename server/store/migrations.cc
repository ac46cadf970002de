#include "server/store/migrations.h"

#include <array>

#include <fmt/core.h>

namespace tundish::store {
namespace {

constexpr std::array<Migration, kSchemaVersion> kMigrations = {{
    {"first tables", R"sql(
CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, state INTEGER NOT NULL,
  submitted_ms INTEGER NOT NULL, archived INTEGER NOT NULL DEFAULT 0, blob BLOB NOT NULL);
CREATE TABLE progress (
  job_id TEXT PRIMARY KEY, step INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE TABLE arrangements (
  job_id TEXT NOT NULL, reason TEXT NOT NULL, job_epoch INTEGER NOT NULL,
  start_step INTEGER NOT NULL, blob BLOB NOT NULL, PRIMARY KEY (job_id, job_epoch));
CREATE TABLE updates (
  job_id TEXT NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, blob BLOB NOT NULL,
  PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
CREATE TABLE requests (
  tenant TEXT NOT NULL, request_id TEXT NOT NULL, job_id TEXT NOT NULL, spec_hash TEXT NOT NULL,
  blob BLOB NOT NULL, PRIMARY KEY (tenant, request_id)) WITHOUT ROWID;
CREATE INDEX requests_by_job ON requests (job_id);
CREATE TABLE nodes (node TEXT PRIMARY KEY, drained INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE TABLE checkpoints (
  job_id TEXT NOT NULL, path TEXT NOT NULL, step INTEGER NOT NULL, blob BLOB NOT NULL,
  PRIMARY KEY (job_id, step));
CREATE TABLE incidents (
  job_id TEXT NOT NULL, number INTEGER NOT NULL, blob BLOB NOT NULL,
  PRIMARY KEY (job_id, number));
CREATE TABLE audit (
  id INTEGER PRIMARY KEY, actor TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL,
  time_ms INTEGER NOT NULL, blob BLOB NOT NULL);
)sql"},
    {"audit rows by time, for their retention", R"sql(
CREATE INDEX audit_by_time ON audit (time_ms);
)sql"},
    {"settings: quotas and schedules", R"sql(
CREATE TABLE settings (
  kind TEXT NOT NULL, name TEXT NOT NULL, blob BLOB NOT NULL, PRIMARY KEY (kind, name))
  WITHOUT ROWID;
)sql"},
}};

}  // namespace

std::span<const Migration> Migrations() {
  return kMigrations;
}

absl::Status Migrate(Database& database, std::int64_t version) {
  for (; version < kSchemaVersion; ++version) {
    const std::string step = fmt::format("BEGIN IMMEDIATE; {} PRAGMA user_version = {}; COMMIT",
                                         kMigrations[version].sql, version + 1);
    absl::Status status = database.Execute(step);
    if (!status.ok()) {
      if (database.in_transaction()) (void)database.Execute("ROLLBACK");
      return absl::Status(status.code(),
                          fmt::format("bringing the schema to version {} ({}): {}", version + 1,
                                      kMigrations[version].what, std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace tundish::store
