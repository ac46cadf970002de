#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tundish/v1/job.pb.h"

namespace tundish::spec {

/// A spec with its defaults filled in, and what is wrong with it.
struct ValidationResult {
  /// Meaningful only when `invalid` is empty.
  v1::JobSpec spec;
  /// In the order of the fields in job.proto; empty when the spec is good.
  std::vector<v1::InvalidField> invalid;

  /// OK, or INVALID_ARGUMENT whose message lists every wrong field, e.g.
  /// "model.heads=4 does not divide by parallel.tensor=3: use a tensor of 1, 2 or 4".
  /// Beyond `most_bytes` the message only says how many more fields are wrong.
  absl::Status ToStatus(size_t most_bytes = SIZE_MAX) const;
};

/// Fills in every default that job.proto names and checks everything that can be known without
/// files: ranges, that heads and MLP divide by `parallel.tensor`, that paths are absolute, and so
/// on. Pure; resolving a resolved spec changes nothing. Left unset, since they depend on the data:
/// `data.classes` when not given (the names found) and `training.schedule.warmup_steps` when
/// the job's length is given in epochs (5 % of Assignment.total_steps, rounded down).
ValidationResult Validate(const v1::JobSpec& in);

/// `Validate` as a StatusOr: the resolved spec, or INVALID_ARGUMENT.
absl::StatusOr<v1::JobSpec> ResolveSpec(const v1::JobSpec& in);

/// Optimizer steps the job runs: `training.steps`, or ⌈epochs · train_images / global_batch⌉.
/// `spec` is resolved. INVALID_ARGUMENT when there are no training images or the number passes 2³²
/// − 1.
absl::StatusOr<std::uint32_t> TotalSteps(const v1::JobSpec& spec, std::uint32_t train_images);

/// The fields (in field order, depth first) in which the two specs differ, the first with both
/// values, e.g. "training.seed is 1, was 0; also training.steps". Empty when they are equal. For
/// ALREADY_EXISTS messages: `now` is the new spec, `before` the stored one; compare resolved specs.
std::string SpecDifference(const v1::JobSpec& before, const v1::JobSpec& now);

/// Lower-case hex SHA-256 of the deterministic serialization of a resolved spec.
std::string SpecHash(const v1::JobSpec& spec);

}  // namespace tundish::spec
