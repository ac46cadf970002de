#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tundish::model {

/// What decides the DropPath and dropout masks of one forward pass, besides layer, sample and
/// element.
struct MaskKey {
  uint64_t seed = 0;
  int64_t step = 0;  ///< Optimizer step the pass belongs to.
  /// Position in the job's global sample order of the batch's first image; the others follow it.
  int64_t first_position = 0;
};

/// The probability that branches of block `block` are dropped: grows linearly from 0 to
/// `last_rate`.
double DropPathRate(double last_rate, int64_t block, int64_t depth);

/// The factor each sample's branch is multiplied with: 0 with probability `rate`, else 1 / (1 -
/// rate). A pure function of (seed, step, branch, position of the sample), so that any cut of the
/// batch over replicas, micro-batches and tensor ranks sees the same masks. fp32 [batch, 1, 1] on
/// the CPU. `branch` numbers the model's residual branches: 2 x block for attention, 2 x block + 1
/// for the MLP.
at::Tensor DropPathScale(const MaskKey& key, int64_t branch, int64_t batch, double rate);

/// The factors of elements [first_element, first_element + count) of each of `batch` samples at one
/// dropout site of the model: 0 with probability `rate`, else 1 / (1 - rate). A pure function of
/// (seed, step, site, position of the sample, element), so that a cut of heads or tokens sees its
/// part of the same mask. fp32 [batch, count] on the CPU. `site` numbers the places where elements
/// are dropped.
at::Tensor DropoutScale(const MaskKey& key, int64_t site, int64_t batch, int64_t first_element,
                        int64_t count, double rate);

}  // namespace tundish::model
