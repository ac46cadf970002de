#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker/weights/key_map.h"
#include "worker/weights/safetensors.h"

namespace tundish::weights {

/// A ViT's weights file of either layout, read with timm's keys.
class VitFile {
 public:
  /// Errors: as SafetensorsReader::Open; InvalidArgument when the keys are no ViT's, or the three
  /// parts of a qkv are not all there or differ in type or shape.
  static absl::StatusOr<VitFile> Open(const std::string& path);

  Layout layout() const { return layout_; }
  const Metadata& metadata() const { return reader_.metadata(); }

  /// The file as it is.
  const SafetensorsReader& reader() const { return reader_; }

  /// Shape and type by timm key.
  const std::map<std::string, TensorSpec, std::less<>>& tensors() const { return tensors_; }

  /// The file's own keys whose tensors, one after the other, make `timm_key`: one, or query, key,
  /// value. Errors: NotFound.
  absl::StatusOr<std::vector<std::string>> PiecesOf(std::string_view timm_key) const;

  /// Fills `out`, which has the tensor's size, with its bytes. Errors: NotFound; InvalidArgument
  /// for another size; as SafetensorsReader::Read.
  absl::Status Read(std::string_view timm_key, std::span<std::byte> out) const;

 private:
  VitFile(SafetensorsReader reader, Layout layout) : reader_(std::move(reader)), layout_(layout) {}
  absl::Status MapTensors();

  SafetensorsReader reader_;
  Layout layout_;
  std::map<std::string, TensorSpec, std::less<>> tensors_;
  /// The file's tensors whose bytes, one after the other, are the timm tensor.
  std::map<std::string, std::vector<std::string>, std::less<>> pieces_;
};

/// Writes the weights of the file at `input`, of either layout, in `layout` to `output`
/// (atomically). Element types and bytes stay as they are. Memory: a fixed buffer.
absl::Status ConvertVitFile(const std::string& input, const std::string& output, Layout layout);

}  // namespace tundish::weights
