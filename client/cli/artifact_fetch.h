#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "client/link/coordinator.h"

namespace tundish::client {

struct FetchedFile {
  uint64_t bytes = 0;
  /// Lower-case hex.
  std::string sha256;
};

/// Lower-case hex SHA-256 of a file. Errors: as open() and read(), naming the path.
absl::StatusOr<FetchedFile> HashFile(const std::string& path);

/// Streams the job's artifact file `artifact_path` (as in Job.artifacts) into `output`, which is
/// created or truncated, and syncs it. On an error `output` may be left incomplete.
/// Errors: as Coordinator::Explain; DataLoss if fewer or more bytes came than announced, or more
/// than `most_bytes`; FailedPrecondition if `output` cannot be written.
absl::StatusOr<FetchedFile> FetchArtifact(Coordinator& coordinator, const std::string& job_id,
                                          const std::string& artifact_path,
                                          const std::string& output, uint64_t most_bytes);

}  // namespace tundish::client
