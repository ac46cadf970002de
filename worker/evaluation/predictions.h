#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tundish::evaluation {

/// What a model makes of one image.
struct Prediction {
  size_t predicted = 0;  ///< the highest score
  size_t decided = 0;    ///< by the thresholds, where there are any
  /// Calibrated, one per class.
  std::vector<double> probabilities;
  /// 1 - the highest of them.
  double uncertainty = 0;
};

/// `thresholds` may be empty.
Prediction Predict(std::span<const float> logits, double temperature,
                   std::span<const double> thresholds);

/// One image of a predictions file.
struct PredictionLine {
  std::string path;   ///< the sample's name, UTF-8
  std::string label;  ///< empty: not known
  Prediction prediction;
  std::optional<uint32_t> order;  ///< its place by falling uncertainty, from 0
};

/// One JSON object and a line break: path, label (left out when not known), predicted, decided,
/// probabilities (class name to number, in logit order, nine decimals), uncertainty and, where
/// there is one, order. Requires UTF-8.
std::string ToJsonLine(const PredictionLine& line, const std::vector<std::string>& classes);

}  // namespace tundish::evaluation
