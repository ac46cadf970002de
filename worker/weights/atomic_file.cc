#include "worker/weights/atomic_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace tundish::weights {
namespace {

absl::Status SystemError(std::string_view doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, fmt::format("cannot {} '{}'", doing, path));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("open folder", folder);
  const bool synced = fsync(fd) == 0;
  const absl::Status status = synced ? absl::OkStatus() : SystemError("sync folder", folder);
  close(fd);
  return status;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

AtomicFile::~AtomicFile() {
  Discard();
}

void AtomicFile::Discard() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
  fd_ = -1;
}

absl::StatusOr<AtomicFile> AtomicFile::Create(std::string path) {
  std::string temporary = path + ".tmp-XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return SystemError("create", path);
  // mkostemp's mode is 0600; the result is to be an ordinary file.
  if (fchmod(fd, 0644) != 0) {
    const absl::Status status = SystemError("set the mode of", temporary);
    close(fd);
    unlink(temporary.c_str());
    return status;
  }
  return AtomicFile(std::move(path), std::move(temporary), fd);
}

absl::Status AtomicFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write", temporary_);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(fd_) != 0) return SystemError("sync", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return SystemError("rename to", path_);
  close(std::exchange(fd_, -1));
  return SyncFolder(FolderOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view text) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = file->Append(std::as_bytes(std::span(text))); !status.ok()) {
    return status;
  }
  return file->Commit();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError("open", path);
  absl::Status status;
  std::string text;
  struct stat facts {};
  if (fstat(fd, &facts) != 0) {
    status = SystemError("read the size of", path);
  } else if (!S_ISREG(facts.st_mode) || static_cast<uint64_t>(facts.st_size) > most_bytes) {
    status = absl::InvalidArgumentError(
        fmt::format("'{}' must be a regular file of at most {} bytes", path, most_bytes));
  } else {
    text.resize(static_cast<size_t>(facts.st_size));
    size_t got = 0;
    while (status.ok() && got < text.size()) {
      const ssize_t count = read(fd, text.data() + got, text.size() - got);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) status = SystemError("read", path);
      if (count == 0) break;  // It shrank meanwhile.
      if (count > 0) got += static_cast<size_t>(count);
    }
    text.resize(got);
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

}  // namespace tundish::weights
