#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker/engine/model/vit.h"

namespace tundish::checkpoint {

/// Where a job's weights come from.
struct StartWeights {
  std::string path;  ///< A safetensors file of timm or Hugging Face layout.
  bool fresh_head = false;
  uint64_t seed = 0;                 ///< Of a head made anew.
  std::vector<std::string> classes;  ///< The job's, in logit order.
};

/// Fills the model from the file: adapted (model::AdaptWeights; timm files antialiased), then cut.
/// A config.json beside the file must agree in what the tensors do not tell: heads, LayerNorm
/// epsilon and, where the head is kept, the order of the classes. Errors: as ReadModelFile and
/// ReadConfigBeside; InvalidArgument that names the file and what does not fit, with both values.
absl::Status LoadStartWeights(const StartWeights& start, model::Vit& vit);

}  // namespace tundish::checkpoint
