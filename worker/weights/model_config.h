#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::weights {

/// What must be known beside the weights to use a trained ViT.
struct ModelConfig {
  int64_t image_size = 0;
  int64_t patch_size = 0;
  int64_t channels = 0;
  int64_t hidden = 0;
  int64_t depth = 0;
  int64_t heads = 0;
  int64_t mlp_hidden = 0;
  bool mean_pooling = false;
  double layer_norm_eps = 1e-6;
  /// In logit order; their number is the number of classes.
  std::vector<std::string> label_names;
  /// Per channel, after scaling pixels to 0..1.
  std::vector<double> mean, std;

  bool operator==(const ModelConfig&) const = default;
};

/// config.json as timm's hub format has it, so that `timm.create_model("local-dir:FOLDER")` builds
/// the model: architecture, num_classes, global_pool, model_args, pretrained_cfg.
std::string TimmConfigJson(const ModelConfig& config);

/// The inverse. Errors: InvalidArgument naming the missing or wrong field.
absl::StatusOr<ModelConfig> ParseTimmConfig(std::string_view json);

/// config.json of transformers' ViTForImageClassification.
/// Errors: InvalidArgument for mean pooling, which that class does not have.
absl::StatusOr<std::string> HuggingFaceConfigJson(const ModelConfig& config);

/// preprocessor_config.json of transformers' ViTImageProcessor.
std::string HuggingFacePreprocessorJson(const ModelConfig& config);

/// Reads what HuggingFaceConfigJson writes; `preprocessor_json` may be empty: mean and std 0.5.
absl::StatusOr<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json,
                                                   std::string_view preprocessor_json);

}  // namespace tundish::weights
