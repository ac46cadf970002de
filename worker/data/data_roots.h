#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::data {

/// The folders below which images and manifests must lie. None: anywhere. Immutable, thread safe.
class DataRoots {
 public:
  /// Absolute folders, separated by colons; others are InvalidArgument.
  static absl::StatusOr<DataRoots> Parse(std::string_view folders);
  /// Those in TUNDISH_DATA_ROOTS when this is first called, which the operator sets for the agent
  /// and the agent hands to its checks and ranks. A value that cannot be read ends the process: it
  /// must not mean "anywhere".
  static const DataRoots& OfProcess();

  /// Opens `path` for reading with `flags` (e.g. O_DIRECTORY), close-on-exec; the caller closes.
  /// With roots the kernel resolves it beneath one (openat2), so neither ".." nor a link leads
  /// outside. Errors: PermissionDenied (outside the roots, or not allowed), NotFound,
  /// InvalidArgument, Unavailable for what may pass.
  absl::StatusOr<int> Open(const std::string& path, int flags) const;

 private:
  std::vector<std::string> folders_;
};

/// `action` and what errno `error` means; see ReadFile for the codes.
absl::Status StatusOfErrno(std::string_view action, int error);

}  // namespace tundish::data
