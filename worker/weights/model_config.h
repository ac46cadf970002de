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
  bool class_token = true;
  int64_t register_tokens = 0;
  bool norm_after_pooling = false;  ///< timm's fc_norm
  bool prefix_positions = true;     ///< the opposite of timm's no_embed_class
  bool qk_norm = false;
  double layer_scale = 0;  ///< start value (timm's init_values); 0: no factors
  double layer_norm_eps = 1e-6;
  /// In logit order; their number is the number of classes. Empty when the file does not say.
  std::vector<std::string> label_names;
  /// Per channel, after scaling pixels to 0..1.
  std::vector<double> mean, std;

  bool operator==(const ModelConfig&) const = default;
};

/// config.json as timm's hub format has it, so that `timm.create_model("local-dir:FOLDER")` builds
/// the model: architecture, num_classes, global_pool, model_args, pretrained_cfg.
std::string TimmConfigJson(const ModelConfig& config);

/// The inverse; also reads what timm itself and its hub write, where the shape may lie in the name
/// of the architecture. Errors: InvalidArgument naming the missing or wrong field.
absl::StatusOr<ModelConfig> ParseTimmConfig(std::string_view json);

/// config.json of transformers' ViTForImageClassification. Errors: InvalidArgument naming the first
/// option that class does not have: mean pooling, registers, layer scale, qk-norm and the like.
absl::StatusOr<std::string> HuggingFaceConfigJson(const ModelConfig& config);

/// preprocessor_config.json of transformers' ViTImageProcessor.
std::string HuggingFacePreprocessorJson(const ModelConfig& config);

/// Reads what HuggingFaceConfigJson and transformers write; `preprocessor_json` may be empty: mean
/// and std 0.5.
absl::StatusOr<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json,
                                                   std::string_view preprocessor_json);

/// Either, told apart by "architecture" and "model_type". Errors: as above; InvalidArgument for
/// neither and for a model_type other than vit.
absl::StatusOr<ModelConfig> ParseAnyConfig(std::string_view config_json,
                                           std::string_view preprocessor_json);

}  // namespace tundish::weights
