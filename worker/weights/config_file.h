#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "worker/weights/model_config.h"

namespace tundish::weights {

/// The config.json in the folder of `weights_path`, timm's or Hugging Face's (with its
/// preprocessor_config.json, where there is one); nothing without such a file. Errors: naming the
/// file, InvalidArgument when it is neither's or a field is wrong.
absl::StatusOr<std::optional<ModelConfig>> ReadConfigBeside(const std::string& weights_path);

}  // namespace tundish::weights
