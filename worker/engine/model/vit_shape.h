#pragma once

#include <cstdint>

#include <absl/status/status.h>

namespace tundish::model {

/// What the head reads after the last block.
enum class Pooling {
  kClassToken,  ///< norm, then the class token
  kMean,        ///< mean over the patch tokens (a class token is not made), then fc_norm
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
  double layer_norm_eps = 1e-6;
  /// Stochastic depth of the last block, growing linearly from 0 at the first. [0, 1).
  double drop_path_rate = 0;

  bool operator==(const VitShape&) const = default;

  int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  /// Sequence length: the patches, and the class token where there is one.
  int64_t tokens() const { return patches() + (pooling == Pooling::kClassToken ? 1 : 0); }
  int64_t head_width() const { return hidden / heads; }

  /// OK when the model can be built and cut over `tensor_degree` ranks. Bounds every size so that
  /// no later product overflows. Errors: InvalidArgument naming the field, its value and what is
  /// right.
  absl::Status Validate(int tensor_degree) const;
};

}  // namespace tundish::model
