#pragma once

#include "worker/evaluation/scores.h"

namespace tundish::evaluation {

inline constexpr double kLeastTemperature = 0.1;
inline constexpr double kMostTemperature = 10;

/// The softmax temperature in [kLeastTemperature, kMostTemperature] with the least mean negative
/// log likelihood (Guo et al. 2017, section 4.2). In the inverse temperature that is convex:
/// Newton's steps on the derivative, bisection where one would leave the bracket, until the bracket
/// or the step is below 1e-12; no randomness. A model that is always right gets the least
/// temperature. Requires at least one image, all labelled.
double FitTemperature(const Scores& scores);

/// Expected calibration error over 15 bins of equal width, (i / 15, (i + 1) / 15]: mean over images
/// of |accuracy - mean confidence| of their bin. `probabilities` as Probabilities() gives them.
double CalibrationError(const Scores& scores, const std::vector<double>& probabilities);

}  // namespace tundish::evaluation
