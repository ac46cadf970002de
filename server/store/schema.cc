#include "server/store/schema.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/core.h>

#include "server/store/migrations.h"

namespace tundish::store {
namespace {

namespace fs = std::filesystem;

fs::path Beside(const fs::path& path, const char* suffix) {
  return path.string() + suffix;
}

absl::Status Damaged(const fs::path& path, std::string_view what) {
  return absl::DataLossError(
      fmt::format("database {}: {}; nothing was changed: restore it from a backup, or move it and "
                  "its -wal file away to begin with an empty one",
                  path.string(), what));
}

absl::Status SyncFolder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = descriptor >= 0 && fsync(descriptor) == 0;
  const std::error_code error(errno, std::generic_category());
  if (descriptor >= 0) close(descriptor);
  if (good) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("syncing folder {}: {}", folder.string(), error.message()));
}

/// Made under another name and renamed when whole, so that an empty or half-made file under the
/// real name is always damage, never a first start that was cut short.
absl::Status Create(const fs::path& path) {
  const fs::path made = Beside(path, ".new");
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    fs::remove(Beside(made, suffix), ignored);
  }
  {
    auto database = Database::Open(made, true);
    if (!database.ok()) return database.status();
    for (const std::string& sql :
         {fmt::format("PRAGMA application_id = {}", kApplicationId),
          std::string("PRAGMA synchronous = FULL"), std::string("PRAGMA journal_mode = WAL")}) {
      if (absl::Status status = database->Execute(sql); !status.ok()) return status;
    }
    if (absl::Status status = Migrate(*database, 0); !status.ok()) return status;
    if (absl::Status status = database->Execute("PRAGMA wal_checkpoint(TRUNCATE)"); !status.ok()) {
      return status;
    }
  }
  std::error_code error;
  fs::rename(made, path, error);
  if (error) {
    return absl::UnavailableError(
        fmt::format("renaming {} to {}: {}", made.string(), path.string(), error.message()));
  }
  return SyncFolder(path);
}

/// What can be seen without SQLite, in words that fit.
absl::Status CheckHeader(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return Damaged(path, "not a regular file");
  std::ifstream file(path, std::ios::binary);
  char header[100] = {};
  file.read(header, sizeof header);
  if (!file.is_open()) {
    return absl::UnavailableError(fmt::format("database {}: cannot be opened", path.string()));
  }
  if (file.gcount() == 0) return Damaged(path, "the file is empty");
  if (std::memcmp(header, "SQLite format 3", 16) != 0) {
    return Damaged(path, "not a SQLite database, or its beginning is overwritten");
  }
  if (file.gcount() < std::ssize(header)) {
    return Damaged(path, fmt::format("truncated to {} bytes", file.gcount()));
  }
  return absl::OkStatus();
}

/// Damage found by SQLite gets the same advice; other errors (I/O, locks) pass as they are.
absl::Status Explain(const fs::path& path, const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return Damaged(path, std::string_view(status.message().data(), status.message().size()));
}

absl::Status CheckWhole(const fs::path& path, Database& database) {
  const auto id = database.QueryNumber("PRAGMA application_id");
  if (!id.ok()) return Explain(path, id.status());
  if (*id != kApplicationId) {
    return Damaged(path, fmt::format("another program's SQLite file (application_id {}, expected "
                                     "{})",
                                     *id, kApplicationId));
  }
  const auto verdict = database.QueryText("PRAGMA quick_check(1)");
  if (!verdict.ok()) return Explain(path, verdict.status());
  if (*verdict != "ok") return Damaged(path, fmt::format("damaged: {}", *verdict));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Database> OpenChecked(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    const auto log_bytes = fs::file_size(Beside(path, "-wal"), error);
    if (!error && log_bytes > 0) {
      return Damaged(path, "the file is missing, but its log -wal is there");
    }
    if (absl::Status status = Create(path); !status.ok()) return status;
  }
  if (absl::Status status = CheckHeader(path); !status.ok()) return status;
  auto database = Database::Open(path, false);
  if (!database.ok()) return database.status();
  if (absl::Status status = CheckWhole(path, *database); !status.ok()) return status;

  const auto version = database->QueryNumber("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*version > kSchemaVersion || *version < 1) {
    return absl::FailedPreconditionError(
        fmt::format("database {} has schema version {}, this program knows 1 to {}: use the "
                    "version of tundishd that wrote it, or a newer one",
                    path.string(), *version, kSchemaVersion));
  }
  for (const char* sql : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"}) {
    if (absl::Status status = database->Execute(sql); !status.ok()) return status;
  }
  if (absl::Status status = Migrate(*database, *version); !status.ok()) return status;
  return database;
}

}  // namespace tundish::store
