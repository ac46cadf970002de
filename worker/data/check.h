#pragma once

#include <string_view>

#include <absl/status/statusor.h>

#include "tundish/v1/job.pb.h"

namespace tundish::data {

/// Most files a SKIP policy may leave out: DataReport lists them all, since ranks leave out exactly
/// the listed ones.
inline constexpr uint32_t kMaxBadFiles = 1000;

/// BadFile.kind of a reason that ReadFile or DecodeImage gave.
std::string_view BadFileKind(std::string_view reason);

/// Reads and decodes every image of `spec.data` once, with `threads` ≥ 1 threads, and reports what
/// is there: classes, counts, the manifest hash (without the files left out), bad files by name,
/// kind and reason, formats, sizes, contents that occur in both splits, warnings. `spec` is
/// resolved (defaults filled in).
///
/// Errors: those of Dataset::Scan; InvalidArgument when a file is bad under policy FAIL (names the
/// first ones and how many), when SKIP leaves out more than max_bad_fraction or kMaxBadFiles, or
/// when the training split has fewer images than global_batch. Blocks; uses no network; meant for a
/// process of its own, since it feeds unknown bytes to image libraries.
absl::StatusOr<v1::DataReport> CheckData(const v1::JobSpec& spec, int threads);

}  // namespace tundish::data
