#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tundish::parity {

/// formula.py's numbers: fp32, equal bits.
at::Tensor Uniform(const std::string& key, int64_t count);
at::Tensor Scaled(const std::string& key, const std::vector<int64_t>& shape, float scale);
at::Tensor Weight(const std::string& key, const std::vector<int64_t>& shape);

/// A tensor of a weights file, as fp32. Throws c10::Error.
at::Tensor ReadTensor(const std::string& path, const std::string& name);

}  // namespace tundish::parity
