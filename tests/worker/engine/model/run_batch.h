#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/engine/model/vit.h"

namespace tundish::model {

/// What a batch did on all ranks of a row, merged.
struct Outcome {
  at::Tensor logits;
  std::map<std::string, at::Tensor> values, gradients;
};

/// Forward, cross-entropy, backward of one batch at a tensor degree, from seed 42. Expects logits
/// and whole parameters' gradients to be bit-equal on all ranks.
Outcome RunBatch(const VitShape& shape, int degree, const at::Tensor& images,
                 const at::Tensor& labels, std::optional<MaskKey> key,
                 const VitOptions& options = {});

/// max|a - b| / max|b|
double Deviation(const at::Tensor& a, const at::Tensor& b);

}  // namespace tundish::model
