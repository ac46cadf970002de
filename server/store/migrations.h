#pragma once

#include <cstdint>
#include <span>

#include <absl/status/status.h>

#include "server/store/sqlite.h"

namespace tundish::store {

/// Version of the schema this program writes.
inline constexpr std::int64_t kSchemaVersion = 3;

/// One step forward. To change the schema, add an entry at the end of migrations.cc, raise
/// kSchemaVersion, and add the database of the version before as SQL text to
/// tests/server/store/fixtures. An entry is never edited once released.
struct Migration {
  /// For the log.
  const char* what;
  /// Runs in one transaction together with the new version number. Whatever it does not name stays
  /// as it is.
  const char* sql;
};

/// Entry v leads from version v to v + 1.
std::span<const Migration> Migrations();

/// Brings the schema from `version` to kSchemaVersion, one transaction per step. After an error the
/// database stands at the last version reached.
absl::Status Migrate(Database& database, std::int64_t version);

}  // namespace tundish::store
