#include "worker/engine/model/vit_shape.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace tundish::model {
namespace {

struct Bound {
  std::string_view name;
  int64_t value;
  int64_t most;
};

}  // namespace

absl::Status VitShape::Validate(int tensor_degree, const Sharding& sharding) const {
  // The largest published ViTs lie a factor of ten below; products of any three fit 63 bits.
  const Bound bounds[] = {
      {"image_size", image_size, 8192},
      {"patch_size", patch_size, 8192},
      {"channels", channels, 64},
      {"hidden", hidden, 65536},
      {"depth", depth, 1024},
      {"heads", heads, 1024},
      {"mlp_hidden", mlp_hidden, 1 << 20},
      {"classes", classes, 1 << 20},
      {"tensor", tensor_degree, 1024},
  };
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.most) {
      return absl::InvalidArgumentError(
          fmt::format("{} {} must be from 1 to {}", bound.name, bound.value, bound.most));
    }
  }
  if (image_size % patch_size != 0) {
    return absl::InvalidArgumentError(
        fmt::format("image_size {} must be a multiple of patch_size {}", image_size, patch_size));
  }
  if (patches() > (1 << 20)) {
    return absl::InvalidArgumentError(fmt::format(
        "image_size {} with patch_size {} makes {} patches, at most 1048576 are possible",
        image_size, patch_size, patches()));
  }
  if (hidden % heads != 0) {
    return absl::InvalidArgumentError(
        fmt::format("hidden {} must be a multiple of heads {}", hidden, heads));
  }
  if (register_tokens < 0 || register_tokens > 1024) {
    return absl::InvalidArgumentError(
        fmt::format("register_tokens {} must be from 0 to 1024", register_tokens));
  }
  if (pooling == Pooling::kClassToken && !class_token) {
    return absl::InvalidArgumentError(
        "class_token false must be true, or pooling the mean: the head reads the class token");
  }
  if (sharding.attention_heads && heads % tensor_degree != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "heads {} must be a multiple of the tensor-parallel degree {}", heads, tensor_degree));
  }
  if (sharding.mlp_intermediate && mlp_hidden % tensor_degree != 0) {
    return absl::InvalidArgumentError(
        fmt::format("mlp_hidden {} must be a multiple of the tensor-parallel degree {}", mlp_hidden,
                    tensor_degree));
  }
  if (sharding.embedding && hidden % tensor_degree != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "hidden {} must be a multiple of the tensor-parallel degree {}", hidden, tensor_degree));
  }
  if (!(layer_norm_eps > 0) || !(layer_norm_eps <= 1e-2)) {
    return absl::InvalidArgumentError(
        fmt::format("layer_norm_eps {} must be above 0 and at most 0.01", layer_norm_eps));
  }
  if (!(layer_scale >= 0) || !(layer_scale <= 100)) {
    return absl::InvalidArgumentError(
        fmt::format("layer_scale {} must be from 0 to 100", layer_scale));
  }
  const std::pair<std::string_view, double> rates[] = {{"drop_path_rate", drop_path_rate},
                                                       {"dropout", dropout},
                                                       {"attention_dropout", attention_dropout}};
  for (const auto& [name, rate] : rates) {
    if (!(rate >= 0) || !(rate < 1)) {
      return absl::InvalidArgumentError(
          fmt::format("{} {} must be at least 0 and below 1", name, rate));
    }
  }
  return absl::OkStatus();
}

}  // namespace tundish::model
