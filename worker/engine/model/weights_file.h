#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tundish::model {

/// Full tensors by timm key: what Vit::LoadFull takes.
using FullTensors = std::map<std::string, at::Tensor>;

/// Reads a safetensors file of timm's or Hugging Face's layout; F32, F16, BF16 and F64 become fp32
/// on the CPU. Throws c10::Error naming the file, the tensor and what would be right.
FullTensors ReadWeightsFile(const std::string& path);

/// Writes full tensors (fp32, any device) as one timm-layout safetensors file: atomically, fsynced.
/// Throws c10::Error naming the file.
void WriteWeightsFile(const std::string& path, const FullTensors& tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace tundish::model
