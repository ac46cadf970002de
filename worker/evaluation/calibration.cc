#include "worker/evaluation/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tundish::evaluation {
namespace {

struct Slope {
  double first = 0;   ///< Of the mean negative log likelihood in the inverse temperature.
  double second = 0;  ///< Mean variance of the logits under the model: never negative.
};

Slope SlopeAt(const Scores& scores, double inverse_temperature) {
  Slope slope;
  std::vector<double> probabilities(scores.classes);
  for (size_t i = 0; i < scores.images(); ++i) {
    const std::span<const float> row = scores.Row(i);
    Softmax(row, 1 / inverse_temperature, probabilities);
    double mean = 0;
    double square = 0;
    // Logits relative to the label's: the differences stay exact for far outliers.
    const double own = row[static_cast<size_t>(scores.labels[i])];
    for (size_t c = 0; c < row.size(); ++c) {
      const double logit = row[c] - own;
      mean += probabilities[c] * logit;
      square += probabilities[c] * logit * logit;
    }
    slope.first += mean;
    slope.second += square - mean * mean;
  }
  const auto images = static_cast<double>(scores.images());
  return {.first = slope.first / images, .second = slope.second / images};
}

}  // namespace

double FitTemperature(const Scores& scores) {
  constexpr double kClose = 1e-12;
  constexpr int kMostSteps = 200;
  double low = 1 / kMostTemperature;
  double high = 1 / kLeastTemperature;
  if (SlopeAt(scores, low).first >= 0) return kMostTemperature;
  if (SlopeAt(scores, high).first <= 0) return kLeastTemperature;
  double at = 1;
  for (int step = 0; step < kMostSteps && high - low > kClose; ++step) {
    const Slope slope = SlopeAt(scores, at);
    if (slope.first == 0) break;
    (slope.first > 0 ? high : low) = at;
    double next = slope.second > 0 ? at - slope.first / slope.second : low;
    if (!(next > low && next < high)) next = (low + high) / 2;
    const double moved = std::abs(next - at);
    at = next;
    if (moved < kClose) break;
  }
  return 1 / at;
}

double CalibrationError(const Scores& scores, const std::vector<double>& probabilities) {
  constexpr size_t kBins = 15;
  struct Bin {
    double confidence = 0;
    double right = 0;
  };
  std::array<Bin, kBins> bins;
  for (size_t i = 0; i < scores.images(); ++i) {
    const std::span<const double> row =
        std::span(probabilities).subspan(i * scores.classes, scores.classes);
    const size_t predicted = Highest(row);
    const double confidence = row[predicted];
    // The upper edge belongs to a bin.
    const double place = std::ceil(confidence * kBins) - 1;
    Bin& bin = bins[static_cast<size_t>(std::clamp<double>(place, 0, kBins - 1))];
    bin.confidence += confidence;
    if (static_cast<int32_t>(predicted) == scores.labels[i]) ++bin.right;
  }
  double error = 0;
  for (const Bin& bin : bins) error += std::abs(bin.right - bin.confidence);
  return error / static_cast<double>(scores.images());
}

}  // namespace tundish::evaluation
