#pragma once

#include <string>

#include "tundish/v1/job.pb.h"

namespace tundish::client {

/// `path` below the job's artifact root, absolute if the job says where that is.
std::string ArtifactPath(const v1::Job& job, const v1::Artifact& artifact);

/// "after step 12: loss 0.48, accuracy 84.1 %, balanced accuracy 82.0 % of 525 images".
std::string EvaluationLine(const v1::Evaluation& evaluation);

/// "rank dp 1 tp 0 on node a: killed_by_signal_9; detect 3 ms, …; 0 steps lost (from survivor)".
std::string IncidentLine(const v1::Incident& incident);

/// Validation numbers, per-class table and confusion matrix; empty without an evaluation.
std::string EvaluationText(const v1::Evaluation& evaluation);

/// What a job came to: state and why, validation, artifacts, incidents, time.
std::string ResultText(const v1::Job& job);

/// Everything `describe` shows.
std::string DescribeText(const v1::Job& job);

}  // namespace tundish::client
