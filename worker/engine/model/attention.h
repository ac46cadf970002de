#pragma once

#include <ATen/core/Tensor.h>

namespace tundish::model {

/// softmax(q kᵀ / sqrt(w)) v per head: [b, h, s, w] each → [b, h, s, w], whose transpose(1, 2) is
/// contiguous. `dropout_bhss`, where defined, multiplies the probabilities and takes the unfused
/// path: fused attention accepts no masks of ours.
at::Tensor MixHeads(const at::Tensor& q_bhsw, const at::Tensor& k_bhsw, const at::Tensor& v_bhsw,
                    const at::Tensor& dropout_bhss);

}  // namespace tundish::model
