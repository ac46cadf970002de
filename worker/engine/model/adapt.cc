#include "worker/engine/model/adapt.h"

#include <cmath>

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <c10/core/GradMode.h>

#include "worker/engine/model/initialize.h"

namespace tundish::model {
namespace {

using FullTensors = std::map<std::string, at::Tensor>;

void FoldChannels(const VitShape& shape, FullTensors& full) {
  const auto found = full.find("patch_embed.proj.weight");
  if (found == full.end() || shape.channels != 1) return;
  at::Tensor& weight = found->second;
  if (weight.dim() == 4 && weight.size(1) == 3) weight = weight.sum(1, /*keepdim=*/true);
}

void ResizePositions(const VitShape& shape, bool antialias, FullTensors& full) {
  const auto found = full.find("pos_embed");
  if (found == full.end() || found->second.dim() != 3 || found->second.size(0) != 1) return;
  at::Tensor& table = found->second;
  const int64_t prefix = shape.positions() - shape.patches();
  const int64_t old_patches = table.size(1) - prefix;
  if (old_patches == shape.patches() || old_patches < 1) return;
  const auto old_side = static_cast<int64_t>(std::lround(std::sqrt(old_patches)));
  if (old_side * old_side != old_patches) return;
  const int64_t side = shape.image_size / shape.patch_size;
  const int64_t width = table.size(2);
  const at::Tensor grid_1dhw = table.narrow(1, prefix, old_patches)
                                   .reshape({1, old_side, old_side, width})
                                   .permute({0, 3, 1, 2});
  const at::Tensor resized_1dhw =
      antialias ? at::_upsample_bicubic2d_aa(grid_1dhw, {side, side}, /*align_corners=*/false)
                : at::upsample_bicubic2d(grid_1dhw, {side, side}, /*align_corners=*/false);
  table = at::cat({table.narrow(1, 0, prefix),
                   resized_1dhw.permute({0, 2, 3, 1}).reshape({1, side * side, width})},
                  1);
}

}  // namespace

void AdaptWeights(const VitShape& shape, const AdaptOptions& options, FullTensors& full_by_name) {
  const c10::AutoGradMode no_grad(false);
  FoldChannels(shape, full_by_name);
  ResizePositions(shape, options.antialias, full_by_name);
  const bool has_head = full_by_name.contains("head.weight") || full_by_name.contains("head.bias");
  if (has_head && !options.fresh_head) return;
  for (const ParameterSpec& spec : ListParameters(shape)) {
    if (spec.name == "head.weight" || spec.name == "head.bias") {
      full_by_name[spec.name] = InitialValue(spec, options.seed);
    }
  }
}

}  // namespace tundish::model
