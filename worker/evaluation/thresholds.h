#pragma once

#include <vector>

#include "worker/evaluation/decisions.h"
#include "worker/evaluation/scores.h"

namespace tundish::evaluation {

/// One threshold per class, for Decide, such that the summed cost of the decisions on `scores` is
/// low: from the better of two starts (all equal; inverse to the mean cost of missing the class),
/// one class after the other takes the value with the least sum exactly, until no class gains any
/// more; a local optimum. Values lie midway, on a logarithmic scale, between the images that they
/// separate. Classes without images keep their start. The sum of all is 1, so that with two classes
/// a threshold is the least probability of its class. `probabilities` as Probabilities() gives
/// them; all images labelled, in canonical order.
std::vector<double> ChooseThresholds(const Scores& scores, const std::vector<double>& probabilities,
                                     const Stakes& stakes);

}  // namespace tundish::evaluation
