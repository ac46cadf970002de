#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tundish/v1/job.pb.h"

namespace tundish::spec {

/// The shape of a preset: preset, image_size, patch_size, hidden, depth, heads, mlp_hidden and
/// channels are set, nothing else. Names: vit_{tiny,small,base,large,huge}_patch{8,14,16,32} and
/// vit_cell. Widths and depths as in Dosovitskiy et al. 2021 (arXiv:2010.11929, table 1) and
/// Touvron et al. 2021 (arXiv:2012.12877) for tiny and small; 224 px, 3 channels. Nothing for an
/// unknown name.
std::optional<v1::ModelSpec> FindPreset(std::string_view name);

/// Every preset's name, smallest model first.
std::vector<std::string> PresetNames();

}  // namespace tundish::spec
