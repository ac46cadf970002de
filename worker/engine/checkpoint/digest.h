#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tundish::checkpoint {

struct FileDigest {
  uint64_t bytes = 0;
  std::string sha256;  ///< lower-case hex
};

/// Reads the whole file. Errors: Unavailable naming the path when it cannot be read.
absl::StatusOr<FileDigest> DigestFile(const std::string& path);

}  // namespace tundish::checkpoint
