#include "client/cli/artifact_fetch.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <openssl/evp.h>
#include <unistd.h>

#include <fmt/core.h>

namespace tundish::client {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(const void* bytes, size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  /// Call once.
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

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
  absl::Status Append(const std::string& bytes) {
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

}  // namespace

absl::StatusOr<FetchedFile> HashFile(const std::string& path) {
  File file(path, O_RDONLY | O_CLOEXEC);
  if (file.fd() < 0) return file.Error();
  FetchedFile hashed;
  Sha256 hash;
  char block[1 << 16];
  for (;;) {
    const ssize_t got = read(file.fd(), block, sizeof block);
    if (got == 0) break;
    if (got < 0 && errno != EINTR) return file.Error();
    if (got < 0) continue;
    hash.Add(block, static_cast<size_t>(got));
    hashed.bytes += static_cast<uint64_t>(got);
  }
  hashed.sha256 = hash.Hex();
  return hashed;
}

absl::StatusOr<FetchedFile> FetchArtifact(Coordinator& coordinator, const std::string& job_id,
                                          const std::string& artifact_path,
                                          const std::string& output, uint64_t most_bytes) {
  File file(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (file.fd() < 0) return file.Error();
  v1::FetchArtifactRequest request;
  request.set_job_id(job_id);
  request.set_path(artifact_path);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const auto reader = coordinator.jobs().FetchArtifact(&context, request);
  FetchedFile fetched;
  Sha256 hash;
  uint64_t announced = 0;
  absl::Status written;
  v1::FetchArtifactResponse response;
  while (written.ok() && reader->Read(&response)) {
    announced = response.total_bytes();
    fetched.bytes += response.chunk().size();
    if (fetched.bytes > announced || announced > most_bytes) {
      written =
          absl::DataLossError(fmt::format("{}: {} of {} announced bytes came, expected at most {}",
                                          artifact_path, fetched.bytes, announced, most_bytes));
      break;
    }
    hash.Add(response.chunk().data(), response.chunk().size());
    written = file.Append(response.chunk());
  }
  if (!written.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!written.ok()) return written;
  if (!status.ok()) return coordinator.Explain(status, context);
  if (fetched.bytes != announced) {
    return absl::DataLossError(fmt::format("{}: the stream ended after {} of {} bytes",
                                           artifact_path, fetched.bytes, announced));
  }
  if (fsync(file.fd()) != 0) return file.Error();
  fetched.sha256 = hash.Hex();
  return fetched;
}

}  // namespace tundish::client
