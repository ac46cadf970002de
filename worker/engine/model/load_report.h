#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/parameter.h"

namespace tundish::model {

/// Throws c10::Error unless `full_by_name` holds exactly the tensors of `specs` in their shapes,
/// all of them finite. The message lists missing, unexpected and misshaped keys, the first eight of
/// each, or names the first tensor with a value that is not finite.
void CheckFits(const std::vector<ParameterSpec>& specs,
               const std::map<std::string, at::Tensor>& full_by_name);

}  // namespace tundish::model
