#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/drop_path.h"
#include "worker/engine/model/parameter.h"
#include "worker/engine/model/parameter_arena.h"
#include "worker/engine/model/vit_shape.h"
#include "worker/engine/parallel/group.h"

namespace tundish::model {

/// One rank's shard of a Vision Transformer: its own heads' rows of each of Q, K and V, its rows of
/// fc1, its columns of proj and fc2; everything else whole (Shoeybi et al. 2019, arXiv:1909.08053).
/// Not thread-safe; one thread drives a model. Dims: b batch, c channels or classes, h image
/// height, w width, s tokens, d residual width.
class Vit {
 public:
  /// Weights are zero until InitializeFromSeed, LoadFull or arena().Restore. The rank and degree
  /// are the slot's. `slot` outlives the model: the trainer owns both and drops the model first.
  /// Throws c10::Error when shape.Validate(slot.size()) is not OK.
  Vit(const VitShape& shape, const parallel::GroupSlot& slot, at::Device device);

  /// Every parameter drawn whole, keyed by (seed, its name), then cut: the merged weights are the
  /// same at any degree. Clears the moments.
  void InitializeFromSeed(uint64_t seed);

  /// Takes this rank's slices of full tensors with timm's keys. Clears the moments. Throws
  /// c10::Error that names the key when one is missing, unknown or of another shape.
  void LoadFull(const std::map<std::string, at::Tensor>& full_by_name);

  /// `images_bchw` fp32, already normalised → logits [b, classes]; equal on all ranks of the group.
  /// With a key, DropPath is active; without one (evaluation) it is not.
  at::Tensor Forward(const at::Tensor& images_bchw, const std::optional<DropPathKey>& key);

  const VitShape& shape() const { return shape_; }
  ParameterArena& arena() { return arena_; }
  const ParameterArena& arena() const { return arena_; }
  /// In timm's order of definition.
  std::vector<Parameter>& parameters() { return arena_.parameters(); }

 private:
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Linear {
    at::Tensor weight, bias;
  };
  struct Block {
    Norm norm1;
    Linear qkv, proj;
    Norm norm2;
    Linear fc1, fc2;
  };

  at::Tensor Embed(const at::Tensor& images_bchw) const;
  at::Tensor Normalize(const at::Tensor& x, const Norm& norm) const;
  at::Tensor Attend(const at::Tensor& x_bsd, const Block& block) const;
  at::Tensor Mlp(const at::Tensor& x_bsd, const Block& block) const;
  /// x + DropPath(branch + bias).
  at::Tensor AddBranch(const at::Tensor& x_bsd, const at::Tensor& branch_bsd,
                       const at::Tensor& bias_d, const std::optional<DropPathKey>& key,
                       int64_t branch) const;
  void BindViews();

  const VitShape shape_;
  const parallel::GroupSlot& slot_;  // See the constructor.
  ParameterArena arena_;
  at::Tensor class_token_, position_table_;
  Linear patch_projection_, head_;
  Norm final_norm_;
  std::vector<Block> blocks_;
};

}  // namespace tundish::model
