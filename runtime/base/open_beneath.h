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

 private:
  int descriptor_;
};

/// Opens a regular file below `root` for reading. Neither "..", an absolute path nor a symbolic
/// link leads out of it (openat2 with RESOLVE_BENEATH). Errors: NotFound, PermissionDenied, and
/// FailedPrecondition for anything but a regular file; they name `path`. Thread-safe; blocks as
/// long as the file system does.
absl::StatusOr<File> OpenBeneath(const std::string& root, const std::string& path);

}  // namespace tundish
