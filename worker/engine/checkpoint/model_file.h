#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "worker/engine/checkpoint/digest.h"
#include "worker/engine/model/weights_file.h"
#include "worker/weights/model_config.h"

namespace tundish::checkpoint {

/// Writes `folder`/model.safetensors (timm keys, fp32) and config.json beside it, so that
/// timm.create_model("local-dir:FOLDER") loads it. Makes the folder; each file is atomic.
/// Returns the digest of model.safetensors. Errors: Unavailable naming the file.
absl::StatusOr<FileDigest> ExportModel(const std::string& folder, const model::FullTensors& tensors,
                                       const weights::ModelConfig& config);

}  // namespace tundish::checkpoint
