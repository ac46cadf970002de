#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <absl/status/statusor.h>

namespace tundish::checkpoint {

struct FileDigest {
  uint64_t bytes = 0;
  std::string sha256;  ///< lower-case hex
};

/// Reads the whole file. Errors: Unavailable naming the path when it cannot be read.
absl::StatusOr<FileDigest> DigestFile(const std::string& path);

/// SHA-256 of `bytes`, lower-case hex.
std::string DigestBytes(std::span<const std::byte> bytes);

}  // namespace tundish::checkpoint
