#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/vit_shape.h"

namespace tundish::model {

/// How a parameter is cut over the tensor-parallel ranks. Every cut is even.
enum class Cut {
  kReplicated,  ///< whole on every rank
  kRows,        ///< dim 0 in `degree` equal parts: fc1
  kColumns,     ///< the last dim in `degree` equal parts: proj, fc2
  kQkvRows,     ///< dim 0 holds Q, K and V; each of the three is cut in `degree` equal parts
};

/// How a parameter starts: as timm's VisionTransformer does, but for the patch projection, which
/// takes the original authors' LeCun normal (timm's weight_init='jax').
enum class Start {
  kZeros,
  kOnes,
  kConstant,         ///< ParameterSpec::start_value
  kTruncatedNormal,  ///< standard deviation 0.02, cut at two deviations
  kTinyNormal,       ///< standard deviation 1e-6: the class token
  kPatchProjection,  ///< standard deviation 1 / sqrt(fan-in), cut at two
};

/// What a parameter is, on whichever rank.
struct ParameterSpec {
  std::string name;  ///< timm's key, e.g. "blocks.3.attn.qkv.weight".
  Cut cut = Cut::kReplicated;
  std::vector<int64_t> full_shape;
  /// Weight decay applies: matrices, but neither the position table nor the prefix tokens.
  bool decay = false;
  Start start = Start::kZeros;
  double start_value = 0;
  /// 0: embedding; i + 1: block i, the last one with `norm`; depth + 1: head, with `fc_norm`. As
  /// timm's groups for layer-wise decay.
  int64_t layer = 0;
  /// The parameter is whole on every rank of the row, but each rank's backward sees only a part of
  /// what it does: the gradient is the sum over the row.
  bool partial_gradient = false;

  int64_t full_numel() const;
  /// This rank's shape. Requires that the cut dim divides, which VitShape::Validate has made sure
  /// of.
  std::vector<int64_t> LocalShape(int degree) const;
};

/// A parameter of this rank. The tensors are views into the model's ParameterArena.
struct Parameter {
  ParameterSpec spec;
  at::Tensor value;       ///< LocalShape(degree), fp32, a leaf that requires grad.
  at::Tensor exp_avg;     ///< Adam's first moment, same shape.
  at::Tensor exp_avg_sq;  ///< Adam's second moment, same shape.
  at::Tensor average;     ///< Moving average of the values, same shape; undefined when not kept.

  bool sharded() const { return spec.cut != Cut::kReplicated; }
};

/// Every parameter of the model in timm's order of definition. The same on every rank.
/// Requires shape.Validate(1).ok().
std::vector<ParameterSpec> ListParameters(const VitShape& shape, const Sharding& sharding = {});

/// The contiguous slice of `full` (spec.full_shape, any dtype and device) that rank `rank` of
/// `degree` holds.
at::Tensor CutForRank(const at::Tensor& full, const ParameterSpec& spec, int rank, int degree);

/// The inverse of CutForRank: writes `slice` into its place in `full`. Call once per rank, or once
/// for a replicated parameter, and `full` is whole again, bit for bit.
void PlaceSlice(at::Tensor& full, const at::Tensor& slice, const ParameterSpec& spec, int rank,
                int degree);

}  // namespace tundish::model
