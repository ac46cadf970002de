#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/statusor.h>

#include "runtime/rpc/server_stream.h"
#include "tundish/v1/job_service.pb.h"

namespace tundish::api {

/// A file descriptor, closed with its owner.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File();
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Opens a regular file below `root` for reading. Neither "..", an absolute path nor a symbolic
/// link leads out of it (openat2 with RESOLVE_BENEATH). Errors: NotFound, PermissionDenied, and
/// FailedPrecondition for anything but a regular file; they name `path`.
absl::StatusOr<File> OpenBeneath(const std::string& root, const std::string& path);

/// Sends one file, reading on as the peer takes it. Everything runs on the stream's executor, which
/// may block. Kept alive by the stream's callbacks.
class ArtifactSender : public std::enable_shared_from_this<ArtifactSender> {
 public:
  using Stream = rpc::ServerStream<v1::FetchArtifactResponse>;
  /// Read ahead of the peer.
  static constexpr size_t kBoundBytes = 2 << 20;

  /// Sends `path` below `root` from byte `offset` and ends the stream: OK, an error of OpenBeneath,
  /// OutOfRange for an offset past the end, DataLoss if the file shrinks meanwhile.
  static void Start(std::shared_ptr<Stream> stream, const std::string& root,
                    const std::string& path, uint64_t offset);

 private:
  ArtifactSender(std::shared_ptr<Stream> stream, File file, uint64_t size, uint64_t offset);
  void Pump();

  std::shared_ptr<Stream> stream_;
  File file_;
  const uint64_t size_;
  uint64_t offset_;
  bool ended_ = false;
};

}  // namespace tundish::api
