#pragma once

#include <cstdint>

#include <absl/status/status.h>

namespace tundish::model {

/// What the head reads after the last block.
enum class Pooling {
  kClassToken,  ///< the class token
  kMean,        ///< the mean over the patch tokens; class token and registers do not count
};

/// What the tensor-parallel ranks of a row divide among themselves. What is not divided, every rank
/// holds and computes whole.
struct Sharding {
  bool attention_heads = true;   ///< Rows of qkv, columns of proj.
  bool mlp_intermediate = true;  ///< Rows of fc1, columns of fc2.
  bool embedding = false;        ///< Channels of patch projection, positions and prefix tokens.
  /// Tokens, between the cut layers (Korthikanti et al. 2022, arXiv:2205.05198): rank r of t keeps
  /// tokens [r k, (r + 1) k), k = ceil(tokens / t), the last ones padding.
  bool sequence = false;

  bool operator==(const Sharding&) const = default;
};

/// The architecture of a Vision Transformer (Dosovitskiy et al. 2020, arXiv:2010.11929), as
/// timm 1.0 builds it: class token first, pre-norm blocks, exact (erf) GELU.
struct VitShape {
  int64_t image_size = 224;  ///< Pixels, square; a multiple of patch_size.
  int64_t patch_size = 16;   ///< Pixels.
  int64_t channels = 3;
  int64_t hidden = 768;  ///< Width of the residual stream; a multiple of heads.
  int64_t depth = 12;    ///< Blocks.
  int64_t heads = 12;
  int64_t mlp_hidden = 3072;
  int64_t classes = 1000;
  Pooling pooling = Pooling::kClassToken;
  bool class_token = true;      ///< Must be there when it is pooled.
  int64_t register_tokens = 0;  ///< Behind the class token (Darcet et al. 2024, arXiv:2309.16588).
  /// The last norm comes after pooling and is called fc_norm; else before, and is called norm. As
  /// timm's fc_norm, which is on by default with mean pooling.
  bool norm_after_pooling = false;
  /// Class token and registers have positions of their own; timm's no_embed_class is the opposite.
  bool prefix_positions = true;
  bool qk_norm = false;    ///< LayerNorm over each head's width on queries and keys.
  double layer_scale = 0;  ///< Start of the factors on each branch; 0: there are none.
  double layer_norm_eps = 1e-6;
  /// Share of elements dropped from the embedding and from each branch's output. [0, 1).
  double dropout = 0;
  /// Share of attention probabilities dropped. [0, 1).
  double attention_dropout = 0;
  /// Stochastic depth of the last block, growing linearly from 0 at the first. [0, 1).
  double drop_path_rate = 0;

  bool operator==(const VitShape&) const = default;

  int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  /// Tokens ahead of the patches.
  int64_t prefix_tokens() const { return (class_token ? 1 : 0) + register_tokens; }
  /// Sequence length: prefix and patches.
  int64_t tokens() const { return patches() + prefix_tokens(); }
  /// Rows of the position table.
  int64_t positions() const { return prefix_positions ? tokens() : patches(); }
  int64_t head_width() const { return hidden / heads; }

  /// OK when the model can be built and cut over `tensor_degree` ranks. Bounds every size so that
  /// no later product overflows. Errors: InvalidArgument naming the field, its value and what is
  /// right.
  absl::Status Validate(int tensor_degree, const Sharding& sharding = {}) const;
};

}  // namespace tundish::model
