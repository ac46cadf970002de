#pragma once

#include <cstdint>
#include <filesystem>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "server/store/sqlite.h"

namespace tundish::store {

/// "TNDS": marks a SQLite file as ours.
inline constexpr std::int64_t kApplicationId = 0x544e4453;

/// Opens the database for writing: makes it if neither it nor its log exists, checks that it is
/// ours and whole, brings its schema forward. The caller holds the lock. Errors as in Store::Open;
/// a file that is refused is not changed.
absl::StatusOr<Database> OpenChecked(const std::filesystem::path& path);

}  // namespace tundish::store
