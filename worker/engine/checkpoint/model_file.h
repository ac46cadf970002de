#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <absl/status/statusor.h>

#include "worker/engine/checkpoint/digest.h"
#include "worker/engine/model/parameter.h"
#include "worker/weights/model_config.h"

namespace tundish::checkpoint {

/// Whole tensors by timm key.
using FullTensors = std::map<std::string, at::Tensor>;

/// A weights file of timm or Hugging Face layout, as fp32. Errors: as weights::VitFile::Open;
/// InvalidArgument for a type that is not a float.
absl::StatusOr<FullTensors> ReadModelFile(const std::string& path);

/// Writes `folder`/model.safetensors (timm keys, fp32) and config.json beside it, so that
/// timm.create_model("local-dir:FOLDER") loads it. Makes the folder; each file is atomic.
/// Returns the digest of model.safetensors.
absl::StatusOr<FileDigest> ExportModel(const std::string& folder,
                                       const std::vector<model::Parameter>& order,
                                       const FullTensors& tensors,
                                       const weights::ModelConfig& config);

}  // namespace tundish::checkpoint
