#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/masks.h"
#include "worker/engine/model/parameter.h"
#include "worker/engine/model/parameter_arena.h"
#include "worker/engine/model/vit_shape.h"
#include "worker/engine/parallel/group.h"

namespace tundish::model {

/// How a shard computes, which changes no result but for the order of additions.
struct VitOptions {
  Sharding sharding;
  /// Activation checkpointing: every n-th block keeps only its input and is computed again in
  /// backward. 0: none.
  int64_t recompute_every = 0;
  /// A moving average of the weights is kept beside them.
  bool keep_average = false;
};

/// One rank's shard of a Vision Transformer: its own heads' rows of each of Q, K and V, its rows of
/// fc1, its columns of proj and fc2; everything else whole (Shoeybi et al. 2019, arXiv:1909.08053),
/// or as VitOptions::sharding says. Not thread-safe; one thread drives a model. Dims: b batch, c
/// channels or classes, h image height or heads, w width, s tokens, k tokens of this rank, d
/// residual width.
class Vit {
 public:
  /// Weights are zero until InitializeFromSeed, LoadFull or arena().Restore. The rank and degree
  /// are the slot's. `slot` outlives the model: the trainer owns both and drops the model first.
  /// Throws c10::Error when the shape does not validate for slot.size() and the sharding.
  Vit(const VitShape& shape, const parallel::GroupSlot& slot, at::Device device,
      const VitOptions& options = {});

  /// Every parameter drawn whole, keyed by (seed, its name), then cut: the merged weights are the
  /// same at any degree. Clears the moments.
  void InitializeFromSeed(uint64_t seed);

  /// Takes this rank's slices of full tensors with timm's keys. Clears the moments. Throws
  /// c10::Error that lists the missing, unexpected and misshaped keys, or names the tensor that
  /// holds a value that is not finite; nothing has changed then.
  void LoadFull(const std::map<std::string, at::Tensor>& full_by_name);

  /// `images_bchw` fp32, already normalised → logits [b, classes]; equal on all ranks of the group.
  /// With a key, DropPath and dropout are active; without one (evaluation) they are not.
  at::Tensor Forward(const at::Tensor& images_bchw, const std::optional<MaskKey>& key);

  /// From now on Forward computes with the averaged weights, which get no gradients, or with the
  /// trained ones again. Requires options().keep_average for the former.
  void UseAverage(bool use);

  /// Ends a step's backward: gradients of which this rank saw only a part become the row's sums, in
  /// new memory. Of the row's ranks all or none call it. Throws when a peer is lost; the gradients
  /// are of no use then.
  void SumPartialGradients();

  const VitShape& shape() const { return shape_; }
  const VitOptions& options() const { return options_; }
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
    Linear qkv;
    Norm q_norm, k_norm;  // Undefined without qk_norm.
    Linear proj;
    at::Tensor gamma1;  // Undefined without layer_scale.
    Norm norm2;
    Linear fc1, fc2;
    at::Tensor gamma2;                // As gamma1.
    std::vector<at::Tensor> weights;  // All of them.
  };

  struct Weights {
    at::Tensor class_token, register_tokens, position_table;
    Linear patch_projection, head;
    Norm final_norm;
    std::vector<Block> blocks;
  };

  Weights Bind(bool average);
  const Block& block(int64_t index) const { return active_->blocks[static_cast<size_t>(index)]; }
  at::Tensor Embed(const at::Tensor& images_bchw, const std::optional<MaskKey>& key) const;
  at::Tensor RunBlock(int64_t index, const at::Tensor& x_bkd,
                      const std::optional<MaskKey>& key) const;
  at::Tensor Normalize(const at::Tensor& x, const Norm& norm) const;
  at::Tensor Attend(const at::Tensor& x_bkd, int64_t index,
                    const std::optional<MaskKey>& key) const;
  at::Tensor Mlp(const at::Tensor& x_bkd, const Block& block) const;
  /// Enters and leaves a layer that is cut (`sharded`) or that every rank computes whole.
  at::Tensor EnterLayer(const at::Tensor& x_bkd, bool sharded) const;
  at::Tensor LeaveLayer(at::Tensor x_bsd, bool sharded) const;
  /// What a branch adds to the residual stream: x + DropPath(gamma * Dropout(branch + bias)).
  at::Tensor AddBranch(const at::Tensor& x_bkd, const at::Tensor& branch_bkd,
                       const at::Tensor& bias_d, const at::Tensor& gamma_d,
                       const std::optional<MaskKey>& key, int64_t branch) const;
  at::Tensor Pool(const at::Tensor& x_bsd) const;

  const VitShape shape_;
  const parallel::GroupSlot& slot_;  // See the constructor.
  const VitOptions options_;
  ParameterArena arena_;
  const Weights trained_;
  const Weights average_;  // Empty when none is kept.
  const Weights* active_;  // One of the two.
};

}  // namespace tundish::model
