#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "runtime/base/open_beneath.h"

namespace tundish::api {

/// A piece of a file.
struct FilePiece {
  std::string bytes;
  uint64_t file_bytes = 0;
};

/// Where a file's bytes come from.
class FileSource {
 public:
  using Done = std::function<void(absl::StatusOr<FilePiece>)>;

  virtual ~FileSource() = default;
  /// Reads up to `most` bytes from `offset` and calls `done` once, within or later, on any thread.
  /// Fewer bytes than asked for before the end of the file are an error. One read at a time.
  virtual void Read(uint64_t offset, size_t most, Done done) = 0;
};

/// A file of this host. Blocks in Read.
class LocalFile : public FileSource {
 public:
  explicit LocalFile(File file) : file_(std::move(file)) {}
  void Read(uint64_t offset, size_t most, Done done) override;

 private:
  const File file_;
};

}  // namespace tundish::api
