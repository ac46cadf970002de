#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tundish::model {

/// Activation checkpointing: computes `body(x)` without keeping what its backward needs, and
/// computes it again in backward, under the autocast of now. Keeps only `x`. `body` must be a pure
/// function of `x` and `leaves`, the parameters whose gradients it makes: run twice, it gives equal
/// bits, so gradients are those of plain autograd, bit for bit. Where it has collectives, all ranks
/// of the group repeat them in the same order. Source: Chen et al. 2016, arXiv:1604.06174.
at::Tensor Recompute(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x,
                     const std::vector<at::Tensor>& leaves);

}  // namespace tundish::model
