#include "worker/engine/model/weights_file.h"

#include <optional>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "worker/weights/vit_file.h"

namespace tundish::model {
namespace {

std::optional<at::ScalarType> ScalarTypeOf(weights::DType dtype) {
  switch (dtype) {
    case weights::DType::kF16:
      return at::kHalf;
    case weights::DType::kBF16:
      return at::kBFloat16;
    case weights::DType::kF32:
      return at::kFloat;
    case weights::DType::kF64:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

std::span<std::byte> BytesOf(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

FullTensors ReadWeightsFile(const std::string& path) {
  const absl::StatusOr<weights::VitFile> file = weights::VitFile::Open(path);
  TORCH_CHECK(file.ok(), std::string(file.status().message()));
  FullTensors tensors;
  for (const auto& [name, spec] : file->tensors()) {
    const std::optional<at::ScalarType> type = ScalarTypeOf(spec.dtype);
    TORCH_CHECK(type.has_value(), "'", name, "' in '", path, "' is of type ",
                std::string(weights::DTypeName(spec.dtype)), ", weights are F32, F16, BF16 or F64");
    at::Tensor tensor = at::empty(spec.shape, *type);
    const absl::Status read = file->Read(name, BytesOf(tensor));
    TORCH_CHECK(read.ok(), std::string(read.message()));
    tensors.emplace(name, tensor.to(at::kFloat));
  }
  return tensors;
}

void WriteWeightsFile(const std::string& path, const FullTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> kept;  // Holds the memory that `out` points to.
  std::vector<weights::TensorBytes> out;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().to(at::kCPU, at::kFloat).contiguous());
    out.push_back({{name, weights::DType::kF32, kept.back().sizes().vec()}, BytesOf(kept.back())});
  }
  const absl::Status written = weights::WriteSafetensors(path, out, metadata);
  TORCH_CHECK(written.ok(), std::string(written.message()));
}

}  // namespace tundish::model
