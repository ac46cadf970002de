#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/vit_shape.h"

namespace tundish::model {

/// How weights that were made for a somewhat different model become those of another.
struct AdaptOptions {
  /// Positions resize with an antialiasing filter, as timm does; without, as Hugging Face does.
  bool antialias = true;
  /// The head is left aside, whatever it is.
  bool fresh_head = false;
  /// Decides a head made anew.
  uint64_t seed = 0;
};

/// Changes full tensors with timm's keys into what `shape` needs: RGB patch weights are summed for
/// a grey model (a grey image is an RGB one with three equal channels), a square grid of positions
/// is interpolated bicubically to another size, prefix positions untouched, and a head that is not
/// there, or shall not be, starts as InitialValue says. What does not fit otherwise is left as it
/// is and found by Vit::LoadFull.
void AdaptWeights(const VitShape& shape, const AdaptOptions& options,
                  std::map<std::string, at::Tensor>& full_by_name);

}  // namespace tundish::model
