#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sqlite3.h>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tundish::store {

/// The last error of `connection` as a status: RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for a
/// damaged file, ALREADY_EXISTS for a unique key, UNAVAILABLE for I/O errors and locks, INTERNAL
/// else. `doing` begins the message.
absl::Status SqliteError(sqlite3* connection, std::string_view doing);

/// A prepared statement. Not thread-safe; ends before its Database.
class Statement {
 public:
  /// Binds the next parameter. `text` and `blob` must stay alive and unchanged until Reset.
  Statement& Bind(std::string_view text);
  Statement& Bind(std::int64_t number);
  Statement& BindBlob(std::string_view blob);

  /// True: a row is there to read. False: done. Binding errors show here too.
  absl::StatusOr<bool> Step();

  /// Steps a statement that returns no rows, then resets it.
  absl::Status Run();

  /// Makes the statement ready for new parameters.
  void Reset();

  std::int64_t Number(int column) const;
  /// Text or blob; valid until the next Step or Reset.
  std::string_view Bytes(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  int bind_error_ = SQLITE_OK;
};

/// A connection. Used by one thread at a time (SQLite's own locks are off).
class Database {
 public:
  /// `create`: makes the file if it is not there. Opening reads nothing yet. Waits at most 5 s for
  /// locks.
  static absl::StatusOr<Database> Open(const std::filesystem::path& path, bool create);

  /// Runs statements that return nothing of interest.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  /// First column of the first row. INTERNAL when there is none.
  absl::StatusOr<std::string> QueryText(std::string_view sql);
  absl::StatusOr<std::int64_t> QueryNumber(std::string_view sql);

  /// True between BEGIN and COMMIT or ROLLBACK (which SQLite does by itself after some errors).
  bool in_transaction() const { return sqlite3_get_autocommit(connection_.get()) == 0; }

  sqlite3* connection() const { return connection_.get(); }

 private:
  struct CloseConnection {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  explicit Database(sqlite3* connection) : connection_(connection) {}

  std::unique_ptr<sqlite3, CloseConnection> connection_;
};

}  // namespace tundish::store
