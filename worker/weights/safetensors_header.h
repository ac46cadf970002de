#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "worker/weights/safetensors.h"

namespace tundish::weights {

struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  Metadata metadata;
};

/// Parses and checks a header (the JSON text) against the size of the data section. Pure. Memory
/// stays within a small multiple of the text, whatever it holds. Errors: InvalidArgument saying
/// what is wrong and with which value.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                         const ReadLimits& limits);

/// The bytes before the data section: the length (8 bytes, little-endian) and the JSON, padded with
/// spaces to a multiple of 8. Errors: InvalidArgument for empty or repeated names and negative
/// extents.
absl::StatusOr<std::string> FormatSafetensorsHeader(const std::vector<TensorSpec>& tensors,
                                                    const Metadata& metadata);

/// Bytes of a tensor. Errors: InvalidArgument for a negative extent or a size beyond 2^60.
absl::StatusOr<uint64_t> TensorByteSize(DType dtype, const std::vector<int64_t>& shape);

}  // namespace tundish::weights
