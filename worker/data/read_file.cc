#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "worker/data/data_roots.h"
#include "worker/data/decode.h"

namespace tundish::data {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK the open of a FIFO would wait for a writer.
  const absl::StatusOr<int> opened = DataRoots::OfProcess().Open(path, O_NONBLOCK);
  if (!opened.ok()) return opened.status();
  const FileDescriptor file(*opened);
  struct stat status;
  if (fstat(file.get(), &status) != 0) return StatusOfErrno("cannot stat", errno);
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError("not a regular file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("too large: {} bytes, at most {} are read", size, max_bytes));
  }
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StatusOfErrno("cannot read", errno);
    if (got == 0) break;  // Became shorter while it was read.
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace tundish::data
