#include "server/api/artifact_sender.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "runtime/rpc/status.h"

namespace tundish::api {
namespace {

constexpr uint64_t kChunkBytes = 256 << 10;

std::string Reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<File> OpenBeneath(const std::string& root, const std::string& path) {
  const File folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.descriptor() < 0) {
    return absl::NotFoundError(fmt::format("artifact root '{}': {}", root, Reason(errno)));
  }
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a pipe must not hold us up before it is refused
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  File file(
      static_cast<int>(syscall(SYS_openat2, folder.descriptor(), path.c_str(), &how, sizeof(how))));
  if (file.descriptor() < 0) {
    const int error = errno;
    const std::string message = fmt::format("artifact '{}': {}", path, Reason(error));
    if (error == EXDEV || error == EACCES || error == ELOOP) {
      return absl::PermissionDeniedError(message);
    }
    return absl::NotFoundError(message);
  }
  struct stat info {};
  if (fstat(file.descriptor(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        fmt::format("artifact '{}' is not a regular file; name a file in it", path));
  }
  return file;
}

void ArtifactSender::Start(std::shared_ptr<Stream> stream, const std::string& root,
                           const std::string& path, uint64_t offset) {
  absl::StatusOr<File> file = OpenBeneath(root, path);
  if (!file.ok()) {
    stream->End(rpc::ToGrpc(file.status()));
    return;
  }
  struct stat info {};
  fstat(file->descriptor(), &info);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (offset > size) {
    stream->End(grpc::Status(
        grpc::StatusCode::OUT_OF_RANGE,
        fmt::format("offset {} is past the end: '{}' has {} bytes", offset, path, size)));
    return;
  }
  std::shared_ptr<ArtifactSender> sender(
      new ArtifactSender(stream, *std::move(file), size, offset));
  stream->Listen({.on_drained = [sender] { sender->Pump(); }, .on_done = {}});
  sender->Pump();
}

ArtifactSender::ArtifactSender(std::shared_ptr<Stream> stream, File file, uint64_t size,
                               uint64_t offset)
    : stream_(std::move(stream)), file_(std::move(file)), size_(size), offset_(offset) {}

void ArtifactSender::Pump() {
  while (!ended_ && stream_->queued_bytes() < kBoundBytes) {
    v1::FetchArtifactResponse response;
    response.set_total_bytes(size_);
    std::string& chunk = *response.mutable_chunk();
    chunk.resize(std::min(kChunkBytes, size_ - offset_));
    const ssize_t got =
        pread(file_.descriptor(), chunk.data(), chunk.size(), static_cast<off_t>(offset_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || (got == 0 && offset_ < size_)) {
      ended_ = true;
      stream_->End(
          grpc::Status(grpc::StatusCode::DATA_LOSS,
                       fmt::format("the file ended or failed at byte {} of {}", offset_, size_)));
      return;
    }
    chunk.resize(static_cast<size_t>(got));
    offset_ += static_cast<uint64_t>(got);
    ended_ = offset_ == size_;
    if (!stream_->Send(std::move(response))) return;  // the peer is gone
    if (ended_) stream_->End(grpc::Status::OK);
  }
}

}  // namespace tundish::api
