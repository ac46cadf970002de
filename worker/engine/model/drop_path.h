#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tundish::model {

/// What decides the DropPath masks of one forward pass, besides layer and sample.
struct DropPathKey {
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
at::Tensor DropPathScale(const DropPathKey& key, int64_t branch, int64_t batch, double rate);

}  // namespace tundish::model
