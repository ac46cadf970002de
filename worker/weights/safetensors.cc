#include "worker/weights/safetensors.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "worker/weights/safetensors_header.h"

namespace tundish::weights {
namespace {

constexpr uint64_t kLengthBytes = 8;

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path,
                                                          ReadLimits limits) {
  // O_NONBLOCK: opening a FIFO must not hang; regular files do not notice.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot open '{}'", path));
  return FromDescriptor(fd, path, limits);
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::FromDescriptor(int fd, std::string label,
                                                                    ReadLimits limits) {
  SafetensorsReader reader(fd, std::move(label));
  if (absl::Status status = reader.ReadHeader(limits); !status.ok()) {
    return absl::Status(status.code(), fmt::format("'{}' is no readable safetensors file: {}",
                                                   reader.label_, std::string(status.message())));
  }
  return reader;
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      label_(std::move(other.label_)),
      data_start_(other.data_start_),
      tensors_(std::move(other.tensors_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&& other) noexcept {
  std::swap(fd_, other.fd_);
  label_ = std::move(other.label_);
  data_start_ = other.data_start_;
  tensors_ = std::move(other.tensors_);
  metadata_ = std::move(other.metadata_);
  return *this;
}

SafetensorsReader::~SafetensorsReader() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SafetensorsReader::ReadHeader(const ReadLimits& limits) {
  struct stat facts {};
  if (fstat(fd_, &facts) != 0) return absl::ErrnoToStatus(errno, "cannot read its size");
  if (!S_ISREG(facts.st_mode)) return absl::InvalidArgumentError("it is not a regular file");
  const auto file_bytes = static_cast<uint64_t>(facts.st_size);
  if (file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError(
        fmt::format("it has {} bytes, at least 8 are needed", file_bytes));
  }
  std::array<std::byte, kLengthBytes> prefix;
  if (absl::Status status = ReadAt(0, prefix); !status.ok()) return status;
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  }
  if (header_bytes > limits.header_bytes || header_bytes > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "its header claims {} bytes; the file holds {} after the length and at most {} are read",
        header_bytes, file_bytes - kLengthBytes, limits.header_bytes));
  }
  std::string text(header_bytes, '\0');
  if (absl::Status status = ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text)));
      !status.ok()) {
    return status;
  }
  data_start_ = kLengthBytes + header_bytes;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(text, file_bytes - data_start_, limits);
  if (!header.ok()) return header.status();
  tensors_ = std::move(header->tensors);
  metadata_ = std::move(header->metadata);
  return absl::OkStatus();
}

absl::Status SafetensorsReader::ReadAt(uint64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot read '{}'", label_));
    if (got == 0) {
      return absl::DataLossError(
          fmt::format("'{}' ended at byte {} while it was read", label_, position));
    }
    position += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::Read(std::string_view name, uint64_t offset,
                                     std::span<std::byte> out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(fmt::format("'{}' holds no tensor '{}'", label_, name));
  }
  const TensorInfo& info = found->second;
  if (offset > info.bytes() || out.size() > info.bytes() - offset) {
    return absl::OutOfRangeError(fmt::format("bytes [{}, {}) of '{}', which has {}", offset,
                                             offset + out.size(), name, info.bytes()));
  }
  return ReadAt(data_start_ + info.begin + offset, out);
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            const std::vector<TensorSpec>& tensors,
                                                            const Metadata& metadata) {
  const absl::StatusOr<std::string> header = FormatSafetensorsHeader(tensors, metadata);
  if (!header.ok()) return header.status();
  uint64_t expected = 0;
  for (const TensorSpec& tensor : tensors) expected += *TensorByteSize(tensor.dtype, tensor.shape);
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = file->Append(std::as_bytes(std::span(*header))); !status.ok()) {
    return status;
  }
  return SafetensorsWriter(*std::move(file), expected);
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    return absl::OutOfRangeError(
        fmt::format("{} bytes where the tensors have {} left", bytes.size(), missing_));
  }
  missing_ -= bytes.size();
  return file_.Append(bytes);
}

absl::Status SafetensorsWriter::Commit() {
  if (missing_ != 0) {
    return absl::FailedPreconditionError(
        fmt::format("{} bytes of the tensors are missing", missing_));
  }
  return file_.Commit();
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                              const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorBytes& tensor : tensors) {
    const absl::StatusOr<uint64_t> bytes = TensorByteSize(tensor.spec.dtype, tensor.spec.shape);
    if (!bytes.ok()) return bytes.status();
    if (*bytes != tensor.bytes.size()) {
      return absl::InvalidArgumentError(fmt::format("'{}' comes with {} bytes, its shape needs {}",
                                                    tensor.spec.name, tensor.bytes.size(), *bytes));
    }
    specs.push_back(tensor.spec);
  }
  absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs, metadata);
  if (!writer.ok()) return writer.status();
  for (const TensorBytes& tensor : tensors) {
    if (absl::Status status = writer->Append(tensor.bytes); !status.ok()) return status;
  }
  return writer->Commit();
}

}  // namespace tundish::weights
