#include "worker/engine/checkpoint/start_weights.h"

#include <optional>

#include <c10/util/Exception.h>
#include <fmt/core.h>

#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/model/adapt.h"
#include "worker/weights/config_file.h"
#include "worker/weights/vit_file.h"

namespace tundish::checkpoint {
namespace {

/// What transformers calls a class nobody named.
bool IsPlaceholder(const std::string& name, size_t index) {
  return name == fmt::format("LABEL_{}", index);
}

absl::Status CheckClasses(const std::vector<std::string>& theirs,
                          const std::vector<std::string>& ours) {
  if (theirs.size() != ours.size()) return absl::OkStatus();  // The head's shape tells.
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i] == ours[i] || theirs[i].empty() || IsPlaceholder(theirs[i], i)) continue;
    return absl::InvalidArgumentError(
        fmt::format("class {} of the head is '{}', the job's is '{}': list data.classes in the "
                    "order of the weights, or set model.fresh_head",
                    i, theirs[i], ours[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const weights::ModelConfig& config, const model::VitShape& shape,
                         const StartWeights& start) {
  if (config.heads != shape.heads) {
    return absl::InvalidArgumentError(
        fmt::format("its config says {} heads, model.heads is {}", config.heads, shape.heads));
  }
  if (config.layer_norm_eps != shape.layer_norm_eps) {
    return absl::InvalidArgumentError(
        fmt::format("its config says a LayerNorm epsilon of {}, model.layer_norm_eps is {}: set it "
                    "to the config's",
                    config.layer_norm_eps, shape.layer_norm_eps));
  }
  return start.fresh_head ? absl::OkStatus() : CheckClasses(config.label_names, start.classes);
}

absl::Status Named(const std::string& path, const absl::Status& status) {
  return {status.code(), fmt::format("{}: {}", path, std::string(status.message()))};
}

}  // namespace

absl::Status LoadStartWeights(const StartWeights& start, model::Vit& vit) {
  const auto file = weights::VitFile::Open(start.path);
  if (!file.ok()) return file.status();
  const auto config = weights::ReadConfigBeside(start.path);
  if (!config.ok()) return config.status();
  if (config->has_value()) {
    if (absl::Status agrees = CheckConfig(**config, vit.shape(), start); !agrees.ok()) {
      return Named(start.path, agrees);
    }
  }
  auto tensors = ReadModelFile(start.path);
  if (!tensors.ok()) return tensors.status();
  try {
    model::AdaptWeights(vit.shape(),
                        {.antialias = file->layout() == weights::Layout::kTimm,
                         .fresh_head = start.fresh_head,
                         .seed = start.seed},
                        *tensors);
    vit.LoadFull(*tensors);
  } catch (const c10::Error& error) {
    return Named(start.path, absl::InvalidArgumentError(error.what_without_backtrace()));
  }
  return absl::OkStatus();
}

}  // namespace tundish::checkpoint
