#include "server/spec/presets.h"

#include <array>

#include <fmt/core.h>

namespace tundish::spec {
namespace {

struct Width {
  std::string_view name;
  int hidden;
  int depth;
  int heads;
};

constexpr std::array<Width, 5> kWidths = {{
    {"tiny", 192, 12, 3},
    {"small", 384, 12, 6},
    {"base", 768, 12, 12},
    {"large", 1024, 24, 16},
    {"huge", 1280, 32, 16},
}};
constexpr std::array<int, 4> kPatchSizes = {32, 16, 14, 8};
constexpr std::string_view kCell = "vit_cell";

std::string PresetName(const Width& width, int patch_size) {
  return fmt::format("vit_{}_patch{}", width.name, patch_size);
}

v1::ModelSpec Shape(const std::string& name, const Width& width, int patch_size) {
  v1::ModelSpec model;
  model.set_preset(name);
  model.set_image_size(224);
  model.set_patch_size(patch_size);
  model.set_hidden(width.hidden);
  model.set_depth(width.depth);
  model.set_heads(width.heads);
  model.set_mlp_hidden(4 * width.hidden);
  model.set_channels(3);
  return model;
}

}  // namespace

std::optional<v1::ModelSpec> FindPreset(std::string_view name) {
  if (name == kCell) {
    v1::ModelSpec model = Shape(std::string(name), {kCell, 192, 6, 4}, 16);
    model.set_image_size(128);
    model.set_channels(1);
    return model;
  }
  for (const Width& width : kWidths) {
    for (const int patch_size : kPatchSizes) {
      const std::string preset = PresetName(width, patch_size);
      if (name == preset) return Shape(preset, width, patch_size);
    }
  }
  return std::nullopt;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names = {std::string(kCell)};
  for (const Width& width : kWidths) {
    for (const int patch_size : kPatchSizes) names.push_back(PresetName(width, patch_size));
  }
  return names;
}

}  // namespace tundish::spec
