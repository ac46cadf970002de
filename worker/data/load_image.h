#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "worker/data/image.h"
#include "worker/data/transform.h"

namespace tundish::data {

/// Waits before a read is tried again; answers false when there is no point any more.
using WaitToRetry = std::function<bool()>;

/// Reads a file; an error of the medium (Unavailable) is tried three times in all, with `wait`
/// between.
absl::StatusOr<std::string> ReadFilePatiently(const std::string& path, const WaitToRetry& wait);

/// Decodes as training does: the model's channels, JPEGs no larger than the transforms need.
absl::StatusOr<Image> DecodeForModel(std::string_view bytes, const TransformOptions& options);

}  // namespace tundish::data
