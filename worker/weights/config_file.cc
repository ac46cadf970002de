#include "worker/weights/config_file.h"

#include <filesystem>

#include <fmt/core.h>

#include "worker/weights/atomic_file.h"

namespace tundish::weights {
namespace {

constexpr size_t kMostConfigBytes = size_t{4} << 20;

/// The text; empty when there is no such file.
absl::StatusOr<std::string> ReadIfThere(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMostConfigBytes);
  if (absl::IsNotFound(text.status())) return std::string();
  return text;
}

}  // namespace

absl::StatusOr<std::optional<ModelConfig>> ReadConfigBeside(const std::string& weights_path) {
  const std::filesystem::path folder = std::filesystem::path(weights_path).parent_path();
  const std::string path = (folder / "config.json").string();
  const absl::StatusOr<std::string> text = ReadIfThere(path);
  if (!text.ok()) return text.status();
  if (text->empty()) return std::nullopt;
  const absl::StatusOr<std::string> preprocessor =
      ReadIfThere((folder / "preprocessor_config.json").string());
  if (!preprocessor.ok()) return preprocessor.status();
  const absl::StatusOr<ModelConfig> config = ParseAnyConfig(*text, *preprocessor);
  if (config.ok()) return *config;
  return absl::Status(config.status().code(),
                      fmt::format("{}: {}", path, std::string(config.status().message())));
}

}  // namespace tundish::weights
