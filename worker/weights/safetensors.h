#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker/weights/atomic_file.h"

namespace tundish::weights {

/// Element types of the safetensors format that Tundish reads and writes.
enum class DType { kBool, kU8, kI8, kI16, kU16, kI32, kU32, kI64, kU64, kF16, kBF16, kF32, kF64 };

/// "F32" and so on, as in the file.
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);
/// Bytes per element.
uint64_t ByteSize(DType dtype);

/// What a file says of one tensor.
struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  /// Bytes [begin, end) of the data section; end - begin is the shape's size.
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

using Metadata = std::map<std::string, std::string>;

/// Bounds on what a reader accepts, checked before memory is taken.
struct ReadLimits {
  uint64_t header_bytes = uint64_t{16} << 20;
  size_t tensors = 65536;
  size_t rank = 8;
  size_t name_bytes = 1024;
};

/// Reads one safetensors file (the format of github.com/huggingface/safetensors, README "Format").
/// The header is trusted in nothing: lengths, offsets, shapes and types are checked against the
/// file, the tensors must tile the data section without gap or overlap, names may not repeat.
/// Reading is thread-safe (pread).
class SafetensorsReader {
 public:
  /// Errors: NotFound and the like from the system; InvalidArgument naming the file, what is wrong
  /// and with which value.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path, ReadLimits limits = {});

  /// The same over an open descriptor, which it takes over; `label` names it in errors.
  static absl::StatusOr<SafetensorsReader> FromDescriptor(int fd, std::string label,
                                                          ReadLimits limits = {});

  SafetensorsReader(SafetensorsReader&& other) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&& other) noexcept;
  ~SafetensorsReader();

  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  /// The header's "__metadata__".
  const Metadata& metadata() const { return metadata_; }
  const std::string& label() const { return label_; }

  /// Fills `out` with the tensor's bytes from `offset` on (little-endian, row-major).
  /// Errors: NotFound for an unknown name; OutOfRange beyond the tensor; DataLoss when the file
  /// shrank.
  absl::Status Read(std::string_view name, uint64_t offset, std::span<std::byte> out) const;

 private:
  SafetensorsReader(int fd, std::string label) : fd_(fd), label_(std::move(label)) {}
  absl::Status ReadHeader(const ReadLimits& limits);
  absl::Status ReadAt(uint64_t position, std::span<std::byte> out) const;

  int fd_ = -1;
  std::string label_;
  uint64_t data_start_ = 0;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  Metadata metadata_;
};

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Writes one safetensors file atomically. The tensors' bytes follow in the order of the specs, in
/// pieces of any size, so that no tensor needs to be in memory whole.
class SafetensorsWriter {
 public:
  /// Errors: InvalidArgument for a repeated or empty name or a negative extent; the system's.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<TensorSpec>& tensors,
                                                  const Metadata& metadata);

  absl::Status Append(std::span<const std::byte> bytes);

  /// Makes the file durable under its name. Errors: FailedPrecondition when bytes are missing.
  absl::Status Commit();

 private:
  SafetensorsWriter(AtomicFile file, uint64_t expected)
      : file_(std::move(file)), missing_(expected) {}

  AtomicFile file_;
  uint64_t missing_;
};

/// A tensor in memory. `bytes` is not owned and little-endian, row-major.
struct TensorBytes {
  TensorSpec spec;
  std::span<const std::byte> bytes;
};

/// The whole file at once.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                              const Metadata& metadata);

}  // namespace tundish::weights
