#include "worker/evaluation/predictions.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "worker/evaluation/decisions.h"
#include "worker/evaluation/scores.h"

namespace tundish::evaluation {
namespace {

double NineDecimals(double value) {
  return std::round(value * 1e9) / 1e9;
}

}  // namespace

Prediction Predict(std::span<const float> logits, double temperature,
                   std::span<const double> thresholds) {
  Prediction prediction;
  prediction.predicted = Highest(logits);
  prediction.probabilities.resize(logits.size());
  Softmax(logits, temperature, prediction.probabilities);
  prediction.decided =
      thresholds.empty() ? prediction.predicted : Decide(prediction.probabilities, thresholds);
  prediction.uncertainty = 1 - prediction.probabilities[prediction.predicted];
  return prediction;
}

std::string ToJsonLine(const PredictionLine& line, const std::vector<std::string>& classes) {
  nlohmann::ordered_json json;
  json["path"] = line.path;
  if (!line.label.empty()) json["label"] = line.label;
  json["predicted"] = classes[line.prediction.predicted];
  json["decided"] = classes[line.prediction.decided];
  nlohmann::ordered_json& probabilities = json["probabilities"];
  for (size_t c = 0; c < classes.size(); ++c) {
    probabilities[classes[c]] = NineDecimals(line.prediction.probabilities[c]);
  }
  json["uncertainty"] = NineDecimals(line.prediction.uncertainty);
  if (line.order.has_value()) json["order"] = *line.order;
  return json.dump() + "\n";
}

}  // namespace tundish::evaluation
