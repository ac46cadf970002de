#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/job.pb.h"

namespace tundish::evaluation {

/// What mistakes cost at the line.
struct Stakes {
  /// Row-major [truth][predicted]; the diagonal is 0.
  std::vector<double> costs;
  /// Per class: no defect. Empty: nobody said which.
  std::vector<bool> good;
  /// evaluation.costs is given.
  bool chooses_thresholds = false;
};

/// Mistakes that the spec does not list cost 1. An entry for one pair stands over one for a whole
/// truth, that over one for a whole prediction; of equal ones the last stands. InvalidArgument,
/// naming field and class, for a name that is not among `classes`.
absl::StatusOr<Stakes> MakeStakes(const v1::EvaluationSpec& spec,
                                  const std::vector<std::string>& classes);

/// Class with the highest probability / threshold, the first of equal ones; without thresholds the
/// highest probability.
size_t Decide(std::span<const double> probabilities, std::span<const double> thresholds);

/// Row-major counts [truth][decided].
std::vector<uint32_t> Confusion(size_t classes, const std::vector<int32_t>& labels,
                                const std::vector<size_t>& decided);

/// Mean cost and rates of a confusion. `confusion` itself is left empty.
v1::Decisions Weigh(const Stakes& stakes, size_t classes, const std::vector<uint32_t>& confusion);

}  // namespace tundish::evaluation
