#pragma once

#include <string>

#include <absl/status/status.h>

#include "tundish/v1/job.pb.h"

namespace tundish::client {

/// Reads a job file (YAML or JSON) and makes its relative paths (data.folder, data.manifest,
/// model.weights) absolute from the file's folder: the coordinator has another working directory.
/// Errors: as MessageFromFile.
absl::Status LoadJobFile(const std::string& path, v1::JobSpec* spec);

}  // namespace tundish::client
