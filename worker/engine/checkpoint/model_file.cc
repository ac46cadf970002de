#include "worker/engine/checkpoint/model_file.h"

#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "worker/weights/atomic_file.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/vit_file.h"

namespace tundish::checkpoint {
namespace {

absl::StatusOr<at::ScalarType> FloatType(weights::DType dtype) {
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
      return absl::InvalidArgumentError(
          fmt::format("type {} is not F16, BF16, F32 or F64", weights::DTypeName(dtype)));
  }
}

}  // namespace

absl::StatusOr<FullTensors> ReadModelFile(const std::string& path) {
  auto file = weights::VitFile::Open(path);
  if (!file.ok()) return file.status();
  FullTensors tensors;
  for (const auto& [key, spec] : file->tensors()) {
    const auto type = FloatType(spec.dtype);
    if (!type.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: '{}' cannot be used: {}", path, key,
                                                    std::string(type.status().message())));
    }
    at::Tensor tensor = at::empty(spec.shape, *type);
    auto* bytes = static_cast<std::byte*>(tensor.mutable_data_ptr());
    if (absl::Status read = file->Read(key, {bytes, tensor.nbytes()}); !read.ok()) return read;
    tensors.emplace(key, tensor.to(at::kFloat));
  }
  return tensors;
}

absl::StatusOr<FileDigest> ExportModel(const std::string& folder,
                                       const std::vector<model::Parameter>& order,
                                       const FullTensors& tensors,
                                       const weights::ModelConfig& config) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(fmt::format("cannot make {}: {}", folder, error.message()));
  }
  std::vector<weights::TensorBytes> out;
  for (const model::Parameter& parameter : order) {
    const at::Tensor& tensor = tensors.at(parameter.spec.name);
    out.push_back(
        {.spec = {.name = parameter.spec.name,
                  .dtype = weights::DType::kF32,
                  .shape = tensor.sizes().vec()},
         .bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  const std::filesystem::path base(folder);
  if (absl::Status written = weights::WriteFileAtomically((base / "config.json").string(),
                                                          weights::TimmConfigJson(config));
      !written.ok()) {
    return written;
  }
  const std::string model = (base / "model.safetensors").string();
  if (absl::Status written = weights::WriteSafetensors(model, out, {{"format", "pt"}});
      !written.ok()) {
    return written;
  }
  return DigestFile(model);
}

}  // namespace tundish::checkpoint
