#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish::weights {

/// How a weights file names its tensors.
enum class Layout {
  kTimm,         ///< timm.models.vision_transformer.VisionTransformer
  kHuggingFace,  ///< transformers.ViTForImageClassification or ViTModel
};

/// Where a tensor of one layout lies in the other: rows [part / parts, (part + 1) / parts) of
/// `key`.
struct KeyPart {
  std::string key;
  int part = 0;
  int parts = 1;

  bool operator==(const KeyPart&) const = default;
};

/// The layout that `keys` belong to; nothing when they are neither's.
std::optional<Layout> DetectLayout(const std::vector<std::string>& keys);

/// The timm tensor that holds `key` of a Hugging Face ViT (with or without the prefix "vit."):
/// query, key and value are the thirds of attn.qkv. Nothing for keys that a classifier does not use
/// (pooler.dense). Errors: InvalidArgument for a key that no ViT has.
absl::StatusOr<std::optional<KeyPart>> TimmKeyOf(std::string_view hugging_face_key);

/// The Hugging Face tensors that hold `timm_key`, one, or three for attn.qkv, in the order of the
/// rows. Errors: InvalidArgument for a key that Hugging Face's ViT has no place for (fc_norm,
/// reg_token, q_norm, k_norm, gamma), naming the option it belongs to.
absl::StatusOr<std::vector<std::string>> HuggingFaceKeysOf(std::string_view timm_key);

}  // namespace tundish::weights
