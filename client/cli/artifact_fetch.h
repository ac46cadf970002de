#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

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

/// A file that comes in pieces: written, counted and hashed. Not thread-safe.
class FileReceiver {
 public:
  /// Creates `path`, or empties it; with `resume` goes on behind what is there.
  /// Errors: FailedPrecondition naming the path.
  static absl::StatusOr<FileReceiver> Open(const std::string& path, bool resume);
  FileReceiver(FileReceiver&&) noexcept;
  ~FileReceiver();

  /// Bytes that are there already.
  uint64_t offset() const;
  /// Errors: DataLoss if more bytes come than the sender announced or `most_bytes` allows;
  /// FailedPrecondition if they cannot be written.
  absl::Status Add(const std::string& chunk, uint64_t announced, uint64_t most_bytes);
  /// Syncs the file. Errors: DataLoss if bytes are missing or the hash is not `sha256` (unless that
  /// is empty); FailedPrecondition.
  absl::StatusOr<FetchedFile> Finish(const std::string& name, const std::string& sha256);

 private:
  struct State;
  explicit FileReceiver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Reads a stream of chunks to its end into `file`. Errors: as FileReceiver and
/// Coordinator::Explain.
template <class Response, class Reader>
absl::StatusOr<FetchedFile> Receive(const Coordinator& coordinator, grpc::ClientContext& context,
                                    Reader& reader, const std::string& name, FileReceiver& file,
                                    uint64_t most_bytes) {
  Response response;
  std::string sha256;
  absl::Status written;
  while (written.ok() && reader.Read(&response)) {
    written = file.Add(response.chunk(), response.total_bytes(), most_bytes);
    if (!response.sha256().empty()) sha256 = response.sha256();
  }
  if (!written.ok()) context.TryCancel();
  const grpc::Status status = reader.Finish();
  if (!written.ok()) return written;
  if (!status.ok()) return coordinator.Explain(status, context);
  return file.Finish(name, sha256);
}

/// Streams the job's artifact file `artifact_path` (as in Job.artifacts) into `output`, which is
/// created or truncated, and syncs it. On an error `output` may be left incomplete.
/// Errors: as Receive.
absl::StatusOr<FetchedFile> FetchArtifact(Coordinator& coordinator, const std::string& job_id,
                                          const std::string& artifact_path,
                                          const std::string& output, uint64_t most_bytes);

/// The same, but goes on where an earlier call left `output`. The hash that is checked is the whole
/// file's.
absl::StatusOr<FetchedFile> ResumeArtifact(Coordinator& coordinator, const std::string& job_id,
                                           const std::string& artifact_path,
                                           const std::string& output);

}  // namespace tundish::client
