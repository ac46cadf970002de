#include "worker/engine/checkpoint/model_file.h"

#include <filesystem>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/core.h>

#include "worker/weights/atomic_file.h"

namespace tundish::checkpoint {

absl::StatusOr<FileDigest> ExportModel(const std::string& folder, const model::FullTensors& tensors,
                                       const weights::ModelConfig& config) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(fmt::format("cannot make {}: {}", folder, error.message()));
  }
  const std::filesystem::path base(folder);
  if (absl::Status written = weights::WriteFileAtomically((base / "config.json").string(),
                                                          weights::TimmConfigJson(config));
      !written.ok()) {
    return written;
  }
  const std::string file = (base / "model.safetensors").string();
  try {
    model::WriteWeightsFile(file, tensors, {{"format", "pt"}});
  } catch (const c10::Error& failed) {
    return absl::UnavailableError(failed.what_without_backtrace());
  }
  return DigestFile(file);
}

}  // namespace tundish::checkpoint
