#include "client/cli/job_file.h"

#include <filesystem>

#include <fmt/core.h>

#include "runtime/config/message_config.h"

namespace tundish::client {

absl::Status LoadJobFile(const std::string& path, v1::JobSpec* spec) {
  if (absl::Status read = MessageFromFile(path, spec); !read.ok()) return read;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (error) {
    return absl::FailedPreconditionError(fmt::format("{}: {}", path, error.message()));
  }
  const auto absolute = [&](std::string* value) {
    // An empty path is the coordinator's to refuse; an absolute one replaces the folder.
    if (!value->empty()) *value = (folder / *value).lexically_normal().string();
  };
  if (spec->data().source_case() == v1::DataSpec::kFolder) {
    absolute(spec->mutable_data()->mutable_folder());
  } else if (spec->data().source_case() == v1::DataSpec::kManifest) {
    absolute(spec->mutable_data()->mutable_manifest());
  }
  if (!spec->model().weights().empty()) absolute(spec->mutable_model()->mutable_weights());
  return absl::OkStatus();
}

}  // namespace tundish::client
