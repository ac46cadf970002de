#include "server/store/sqlite.h"

#include <utility>

#include <fmt/core.h>

namespace tundish::store {

absl::Status SqliteError(sqlite3* connection, std::string_view doing) {
  const int code = sqlite3_errcode(connection) & 0xff;
  const std::string message = fmt::format("{}: {}", doing, sqlite3_errmsg(connection));
  switch (code) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::DataLossError(message);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

Statement& Statement::Bind(std::string_view text) {
  const int error = sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(),
                                        SQLITE_STATIC, SQLITE_UTF8);
  if (error != SQLITE_OK) bind_error_ = error;
  return *this;
}

Statement& Statement::Bind(std::int64_t number) {
  const int error = sqlite3_bind_int64(statement_.get(), ++bound_, number);
  if (error != SQLITE_OK) bind_error_ = error;
  return *this;
}

Statement& Statement::BindBlob(std::string_view blob) {
  // A null pointer would bind NULL instead of an empty blob.
  const char* data = blob.empty() ? "" : blob.data();
  const int error =
      sqlite3_bind_blob64(statement_.get(), ++bound_, data, blob.size(), SQLITE_STATIC);
  if (error != SQLITE_OK) bind_error_ = error;
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  sqlite3* connection = sqlite3_db_handle(statement_.get());
  if (bind_error_ != SQLITE_OK) {
    return absl::InternalError(fmt::format("binding to {}: {}", sqlite3_sql(statement_.get()),
                                           sqlite3_errstr(bind_error_)));
  }
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return SqliteError(connection, sqlite3_sql(statement_.get()));
}

absl::Status Statement::Run() {
  const absl::Status status = Step().status();
  Reset();
  return status;
}

void Statement::Reset() {
  // The error of the last Step comes back here; it has been reported.
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  bound_ = 0;
  bind_error_ = SQLITE_OK;
}

std::int64_t Statement::Number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

absl::StatusOr<Database> Database::Open(const std::filesystem::path& path, bool create) {
  sqlite3* connection = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (create ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  if (connection == nullptr) return absl::ResourceExhaustedError("out of memory");
  Database database(connection);
  if (code != SQLITE_OK) return SqliteError(connection, fmt::format("opening {}", path.string()));
  sqlite3_busy_timeout(connection, 5000);
  return database;
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return SqliteError(connection_.get(), sql.substr(0, 60));
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return SqliteError(connection_.get(), sql);
  return Statement(statement);
}

absl::StatusOr<std::string> Database::QueryText(std::string_view sql) {
  auto statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->Step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::InternalError(fmt::format("{}: no row", sql));
  return std::string(statement->Bytes(0));
}

absl::StatusOr<std::int64_t> Database::QueryNumber(std::string_view sql) {
  auto statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->Step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::InternalError(fmt::format("{}: no row", sql));
  return statement->Number(0);
}

}  // namespace tundish::store
