#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/job.pb.h"
#include "worker/evaluation/scores.h"

namespace tundish::evaluation {

/// Everything v1::Evaluation says about predictions; `step`, `data_epoch`, `best` and `since_best`
/// are the caller's. Depends on the set of images only, bit for bit, not on their order.
///
/// Accuracies, precision, recall, F1, AUROC and average precision are those of scikit-learn on the
/// softmax of the logits: balanced accuracy over classes with images, macro F1 over classes with
/// images or predictions, a precision without predictions 0. Thresholds are chosen where
/// `spec` has costs, on the calibrated probabilities of these very images.
///
/// Errors: as Check and MakeStakes; InvalidArgument for no image and for one without a label.
absl::StatusOr<v1::Evaluation> Evaluate(const Scores& scores,
                                        const std::vector<std::string>& classes,
                                        const v1::EvaluationSpec& spec);

}  // namespace tundish::evaluation
