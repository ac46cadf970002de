#include "client/cli/artifact_fetch.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include <fmt/core.h>

#include "runtime/base/sha256.h"

namespace tundish::client {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(open(path.c_str(), flags, 0644)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  absl::Status Error() const {
    return absl::FailedPreconditionError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  absl::Status Write(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = write(fd_, bytes.data() + done, bytes.size() - done);
      if (wrote < 0 && errno != EINTR) return Error();
      if (wrote > 0) done += static_cast<size_t>(wrote);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int fd_;
};

/// Hashes what is there from the file's position on.
absl::Status HashRest(const File& file, Sha256& hash, uint64_t& bytes) {
  char block[1 << 16];
  for (;;) {
    const ssize_t got = read(file.fd(), block, sizeof block);
    if (got == 0) return absl::OkStatus();
    if (got < 0 && errno != EINTR) return file.Error();
    if (got < 0) continue;
    hash.Add({block, static_cast<size_t>(got)});
    bytes += static_cast<uint64_t>(got);
  }
}

}  // namespace

absl::StatusOr<FetchedFile> HashFile(const std::string& path) {
  const File file(path, O_RDONLY | O_CLOEXEC);
  if (file.fd() < 0) return file.Error();
  FetchedFile hashed;
  Sha256 hash;
  if (absl::Status read = HashRest(file, hash, hashed.bytes); !read.ok()) return read;
  hashed.sha256 = ToHex(hash.Finish());
  return hashed;
}

struct FileReceiver::State {
  State(const std::string& path, int flags) : file(path, flags) {}
  File file;
  Sha256 hash;
  uint64_t bytes = 0;
  uint64_t announced = 0;
};

FileReceiver::FileReceiver(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileReceiver::FileReceiver(FileReceiver&&) noexcept = default;
FileReceiver::~FileReceiver() = default;

absl::StatusOr<FileReceiver> FileReceiver::Open(const std::string& path, bool resume) {
  auto state = std::make_unique<State>(path, O_RDWR | O_CREAT | O_CLOEXEC | (resume ? 0 : O_TRUNC));
  if (state->file.fd() < 0) return state->file.Error();
  if (absl::Status read = HashRest(state->file, state->hash, state->bytes); !read.ok()) return read;
  return FileReceiver(std::move(state));
}

uint64_t FileReceiver::offset() const {
  return state_->bytes;
}

absl::Status FileReceiver::Add(const std::string& chunk, uint64_t announced, uint64_t most_bytes) {
  state_->announced = announced;
  if (state_->bytes + chunk.size() > announced || announced > most_bytes) {
    return absl::DataLossError(fmt::format("{} of {} announced bytes came, expected at most {}",
                                           state_->bytes + chunk.size(), announced, most_bytes));
  }
  state_->bytes += chunk.size();
  state_->hash.Add(chunk);
  return state_->file.Write(chunk);
}

absl::StatusOr<FetchedFile> FileReceiver::Finish(const std::string& name,
                                                 const std::string& sha256) {
  if (state_->bytes != state_->announced) {
    return absl::DataLossError(fmt::format("{}: the stream ended after {} of {} bytes", name,
                                           state_->bytes, state_->announced));
  }
  if (fsync(state_->file.fd()) != 0) return state_->file.Error();
  FetchedFile fetched{.bytes = state_->bytes, .sha256 = ToHex(state_->hash.Finish())};
  if (!sha256.empty() && sha256 != fetched.sha256) {
    return absl::DataLossError(
        fmt::format("{} arrived with SHA-256 {}, the sender has {}", name, fetched.sha256, sha256));
  }
  return fetched;
}

namespace {

absl::StatusOr<FetchedFile> Fetch(Coordinator& coordinator, const std::string& job_id,
                                  const std::string& path, FileReceiver& file,
                                  uint64_t most_bytes) {
  v1::FetchArtifactRequest request;
  request.set_job_id(job_id);
  request.set_path(path);
  request.set_offset(file.offset());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const auto reader = coordinator.jobs().FetchArtifact(&context, request);
  return Receive<v1::FetchArtifactResponse>(coordinator, context, *reader, path, file, most_bytes);
}

}  // namespace

absl::StatusOr<FetchedFile> FetchArtifact(Coordinator& coordinator, const std::string& job_id,
                                          const std::string& artifact_path,
                                          const std::string& output, uint64_t most_bytes) {
  absl::StatusOr<FileReceiver> file = FileReceiver::Open(output, false);
  if (!file.ok()) return file.status();
  return Fetch(coordinator, job_id, artifact_path, *file, most_bytes);
}

absl::StatusOr<FetchedFile> ResumeArtifact(Coordinator& coordinator, const std::string& job_id,
                                           const std::string& artifact_path,
                                           const std::string& output) {
  absl::StatusOr<FileReceiver> file = FileReceiver::Open(output, true);
  if (!file.ok()) return file.status();
  return Fetch(coordinator, job_id, artifact_path, *file, UINT64_MAX);
}

}  // namespace tundish::client
