#pragma once

#include <cstdint>

#include "tundish/v1/job.pb.h"

// What a ViT costs, as formulas. h hidden, L depth, a heads, s tokens, b images, t tensor-parallel
// degree, p patch size, N patches, c input channels, C classes, m MLP width (4h unless overridden).
namespace tundish::planner {

/// Tokens per image, class token included (mean pooling has it too, as in timm).
std::int64_t Tokens(const v1::ModelSpec& model);

/// Multiply-accumulates of one image's forward pass:
/// L · (s·(4h² + 2hm) + 2·s²·h) + c·p²·N·h + h·C, which is L · (12·s·h² + 2·s²·h) + … at m = 4h.
double ForwardMacs(const v1::ModelSpec& model, int classes);

/// Training FLOPs per image = 6 × ForwardMacs: two per multiply-accumulate, and the backward pass
/// costs twice the forward. Recomputation does not count.
double FlopsPerImage(const v1::ModelSpec& model, int classes);

/// Parameters of the whole model, timm's layout.
std::int64_t Parameters(const v1::ModelSpec& model, int classes);

/// Parameters one rank holds: block matrices and column-parallel biases cut by `tensor`; norms,
/// row-parallel biases, embedding, positions and head whole (Shoeybi et al. 2019, arXiv:1909.08053,
/// §3).
std::int64_t ParametersPerRank(const v1::ModelSpec& model, int classes, int tensor);

/// Bytes per parameter of weights, gradients and AdamW's two moments: 16 in fp32, 18 under bf16
/// autocast (+2 for the cached bf16 copy). With ZeRO-1 over `data` replicas the moments are cut
/// into shards, each held twice (owner and buddy): 8 + 16/data (+2).
double BytesPerParameter(v1::Precision precision, bool zero1 = false, int data = 1);

/// Activation bytes one image keeps for backward on one rank, all blocks, fused attention, no
/// dropout: s·h·(12 + 24/t) per block under bf16 autocast (LayerNorm and the residual stream in
/// fp32). Source of the form: Korthikanti et al. 2022, arXiv:2205.05198; constants measured from
/// PyTorch's saved tensors. In fp32 every saved element takes 4 bytes instead of 2: s·h·(16 +
/// 48/t). The m/h-dependent part (24 = 8 attention + 16 MLP at m = 4h) scales with m.
///
/// With every block checkpointed each keeps its fp32 input, 4·s·h, and one block at a time is
/// whole.
std::int64_t ActivationBytesPerImage(const v1::ModelSpec& model, v1::Precision precision,
                                     int tensor, bool checkpointing = false);

}  // namespace tundish::planner
