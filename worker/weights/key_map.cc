#include "worker/weights/key_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

namespace tundish::weights {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;  // timm, Hugging Face

constexpr std::string_view kBackbone = "vit.";
constexpr std::string_view kTimmBlock = "blocks.";
constexpr std::string_view kHuggingFaceBlock = "encoder.layer.";
constexpr std::string_view kQkv = "attn.qkv";
constexpr std::string_view kHuggingFaceQkv = "attention.attention.";
constexpr std::array<std::string_view, 3> kQkvParts = {"query", "key", "value"};

/// Outside the blocks, without "vit.".
constexpr Pair kPlain[] = {
    {"cls_token", "embeddings.cls_token"},
    {"pos_embed", "embeddings.position_embeddings"},
    {"patch_embed.proj.weight", "embeddings.patch_embeddings.projection.weight"},
    {"patch_embed.proj.bias", "embeddings.patch_embeddings.projection.bias"},
    {"norm.weight", "layernorm.weight"},
    {"norm.bias", "layernorm.bias"},
};

constexpr Pair kHead[] = {{"head.weight", "classifier.weight"}, {"head.bias", "classifier.bias"}};

/// Inside a block, without ".weight" or ".bias".
constexpr Pair kBlock[] = {
    {"norm1", "layernorm_before"}, {"attn.proj", "attention.output.dense"},
    {"norm2", "layernorm_after"},  {"mlp.fc1", "intermediate.dense"},
    {"mlp.fc2", "output.dense"},
};

/// "<prefix><index>.<module>.<weight or bias>" taken apart.
struct BlockKey {
  std::string_view index, module, field;
};

std::optional<BlockKey> SplitBlockKey(std::string_view key, std::string_view prefix) {
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  const size_t dot = key.find('.');
  const size_t last = key.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || last <= dot) return std::nullopt;
  const BlockKey parts{key.substr(0, dot), key.substr(dot + 1, last - dot - 1),
                       key.substr(last + 1)};
  const auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
  if (!std::ranges::all_of(parts.index, is_digit)) return std::nullopt;
  if (parts.field != "weight" && parts.field != "bias") return std::nullopt;
  return parts;
}

absl::Status Unknown(std::string_view key, std::string_view layout) {
  return absl::InvalidArgumentError(
      fmt::format("'{}' is not a tensor of a {} Vision Transformer", key, layout));
}

absl::Status NoPlace(std::string_view key, std::string_view option) {
  return absl::InvalidArgumentError(
      fmt::format("'{}' belongs to a model {}, which the Hugging Face layout has no place for; use "
                  "the timm layout",
                  key, option));
}

}  // namespace

std::optional<Layout> DetectLayout(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (key == "patch_embed.proj.weight") return Layout::kTimm;
    if (std::string_view(key).ends_with("embeddings.patch_embeddings.projection.weight")) {
      return Layout::kHuggingFace;
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<KeyPart>> TimmKeyOf(std::string_view hugging_face_key) {
  for (const auto& [timm, hugging_face] : kHead) {
    if (hugging_face_key == hugging_face) return KeyPart{std::string(timm)};
  }
  std::string_view key = hugging_face_key;
  if (key.starts_with(kBackbone)) key.remove_prefix(kBackbone.size());
  if (key == "pooler.dense.weight" || key == "pooler.dense.bias") return std::nullopt;
  for (const auto& [timm, hugging_face] : kPlain) {
    if (key == hugging_face) return KeyPart{std::string(timm)};
  }
  const std::optional<BlockKey> block = SplitBlockKey(key, kHuggingFaceBlock);
  if (!block.has_value()) return Unknown(hugging_face_key, "Hugging Face");
  for (int part = 0; part < 3; ++part) {
    if (block->module ==
        fmt::format("{}{}", kHuggingFaceQkv, kQkvParts[static_cast<size_t>(part)])) {
      return KeyPart{fmt::format("{}{}.{}.{}", kTimmBlock, block->index, kQkv, block->field), part,
                     3};
    }
  }
  for (const auto& [timm, hugging_face] : kBlock) {
    if (block->module == hugging_face) {
      return KeyPart{fmt::format("{}{}.{}.{}", kTimmBlock, block->index, timm, block->field)};
    }
  }
  return Unknown(hugging_face_key, "Hugging Face");
}

absl::StatusOr<std::vector<std::string>> HuggingFaceKeysOf(std::string_view timm_key) {
  for (const auto& [timm, hugging_face] : kHead) {
    if (timm_key == timm) return std::vector{std::string(hugging_face)};
  }
  for (const auto& [timm, hugging_face] : kPlain) {
    if (timm_key == timm) return std::vector{fmt::format("{}{}", kBackbone, hugging_face)};
  }
  if (timm_key.starts_with("fc_norm.")) {
    return NoPlace(timm_key, "with mean pooling");
  }
  if (timm_key == "reg_token") return NoPlace(timm_key, "with register tokens");
  const std::optional<BlockKey> block = SplitBlockKey(timm_key, kTimmBlock);
  if (timm_key.starts_with(kTimmBlock) && timm_key.ends_with(".gamma")) {
    return NoPlace(timm_key, "with layer scale");
  }
  if (!block.has_value()) return Unknown(timm_key, "timm");
  if (block->module == "attn.q_norm" || block->module == "attn.k_norm") {
    return NoPlace(timm_key, "with a norm of queries and keys");
  }
  const std::string prefix = fmt::format("{}{}{}.", kBackbone, kHuggingFaceBlock, block->index);
  if (block->module == kQkv) {
    std::vector<std::string> keys;
    for (const std::string_view part : kQkvParts) {
      keys.push_back(fmt::format("{}{}{}.{}", prefix, kHuggingFaceQkv, part, block->field));
    }
    return keys;
  }
  for (const auto& [timm, hugging_face] : kBlock) {
    if (block->module == timm) {
      return std::vector{fmt::format("{}{}.{}", prefix, hugging_face, block->field)};
    }
  }
  return Unknown(timm_key, "timm");
}

}  // namespace tundish::weights
