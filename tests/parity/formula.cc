#include "tests/parity/formula.h"

#include <bit>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "worker/weights/safetensors.h"

namespace tundish::parity {

at::Tensor Uniform(const std::string& key, int64_t count) {
  uint32_t start = 0x811c9dc5;
  for (const char c : key) start = (start ^ static_cast<unsigned char>(c)) * 0x01000193;
  at::Tensor values = at::empty({count}, at::kFloat);
  const std::span<float> out(values.mutable_data_ptr<float>(), static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b1U + start;
    x = (x ^ (x >> 16)) * 0x85ebca6bU;
    x = (x ^ (x >> 13)) * 0xc2b2ae35U;
    x ^= x >> 16;
    out[i] = static_cast<float>(x >> 8) * 0x1p-24F - 0.5F;
  }
  return values;
}

at::Tensor Scaled(const std::string& key, const std::vector<int64_t>& shape, float scale) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return Uniform(key, count).mul_(scale).view(shape);
}

at::Tensor Weight(const std::string& key, const std::vector<int64_t>& shape) {
  if (shape.size() == 2 || shape.size() == 4) {
    uint64_t fan_in = 1;
    for (size_t i = 1; i < shape.size(); ++i) fan_in *= static_cast<uint64_t>(shape[i]);
    const int halvings = (static_cast<int>(std::bit_width(fan_in)) - 1) / 2;
    return Scaled(key, shape, 2.0F / static_cast<float>(int64_t{1} << halvings));
  }
  if (shape.size() == 3) return Scaled(key, shape, 1);
  const at::Tensor value = Scaled(key, shape, 0.5F);
  const bool norm = key.find("norm") != std::string::npos && key.ends_with("weight");
  return norm ? value + 1 : value;
}

at::Tensor ReadTensor(const std::string& path, const std::string& name) {
  const absl::StatusOr<weights::SafetensorsReader> file = weights::SafetensorsReader::Open(path);
  TORCH_CHECK(file.ok(), std::string(file.status().message()));
  const auto found = file->tensors().find(name);
  TORCH_CHECK(found != file->tensors().end(), path, " holds no '", name, "'");
  at::Tensor tensor = at::empty(found->second.shape);
  const absl::Status read =
      file->Read(name, 0, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  TORCH_CHECK(read.ok(), std::string(read.message()));
  return tensor;
}

}  // namespace tundish::parity
