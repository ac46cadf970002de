#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tundish::weights {

/// A file that appears under its name complete or not at all: written to a temporary name in the
/// same folder, fsynced, renamed, the folder fsynced. A crash at any instant leaves the previous
/// file. Not thread-safe. Two writers of one path: the last Commit wins, both files are whole.
class AtomicFile {
 public:
  /// Errors: the errno's status, naming the path.
  static absl::StatusOr<AtomicFile> Create(std::string path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  /// Removes the temporary file when not committed.
  ~AtomicFile();

  /// Appends all of `bytes`.
  absl::Status Append(std::span<const std::byte> bytes);

  /// After OK the file is durable under its name. Call once.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd);
  void Discard();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// All of `text` as one atomic file.
absl::Status WriteFileAtomically(const std::string& path, std::string_view text);

/// The whole file, refused before allocation when longer than `most_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most_bytes);

}  // namespace tundish::weights
