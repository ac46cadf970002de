#pragma once

#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace tundish {

/// A file descriptor, closed with its owner.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File();
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;
  int descriptor() const { return descriptor_; }
  /// The descriptor is the caller's from now on.
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

/// Opens a regular file below `root` for reading. Neither "..", an absolute path nor a symbolic
/// link leads out of it (openat2 with RESOLVE_BENEATH). Errors: NotFound, PermissionDenied, and
/// FailedPrecondition for anything but a regular file; they name `path`. Thread-safe; blocks as
/// long as the file system does.
absl::StatusOr<File> OpenBeneath(const std::string& root, const std::string& path);

/// The call behind it, for folders, or where other errors are wanted: `path` beneath the open
/// `folder`, with open(2)'s `flags`. On failure the descriptor is negative and errno tells why.
File OpenBeneath(const File& folder, const std::string& path, int flags);

}  // namespace tundish
