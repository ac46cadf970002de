#include "worker/evaluation/scores.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <numeric>

#include <fmt/core.h>

namespace tundish::evaluation {

absl::Status Check(const Scores& scores) {
  if (scores.classes == 0 || scores.logits.size() != scores.images() * scores.classes) {
    return absl::InvalidArgumentError(
        fmt::format("{} scores for {} images and {} classes: expected one per image and class",
                    scores.logits.size(), scores.images(), scores.classes));
  }
  for (size_t i = 0; i < scores.images(); ++i) {
    const int32_t label = scores.labels[i];
    if (label != Scores::kUnknown && (label < 0 || static_cast<size_t>(label) >= scores.classes)) {
      return absl::InvalidArgumentError(
          fmt::format("image {} has label {}: expected 0 to {}", i, label, scores.classes - 1));
    }
    for (const float logit : scores.Row(i)) {
      if (std::isfinite(logit)) continue;
      return absl::InvalidArgumentError(
          fmt::format("image {} has a score of {}: expected finite ones", i, logit));
    }
  }
  return absl::OkStatus();
}

Scores Canonical(const Scores& scores) {
  std::vector<size_t> order(scores.images());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&scores](size_t a, size_t b) {
    if (scores.labels[a] != scores.labels[b]) return scores.labels[a] < scores.labels[b];
    return std::ranges::lexicographical_compare(scores.Row(a), scores.Row(b));
  });
  Scores sorted{.classes = scores.classes};
  sorted.logits.reserve(scores.logits.size());
  sorted.labels.reserve(scores.images());
  for (const size_t image : order) {
    const std::span<const float> row = scores.Row(image);
    sorted.logits.insert(sorted.logits.end(), row.begin(), row.end());
    sorted.labels.push_back(scores.labels[image]);
  }
  return sorted;
}

void Softmax(std::span<const float> logits, double temperature, std::span<double> out) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (size_t c = 0; c < logits.size(); ++c) {
    out[c] = std::exp((logits[c] - highest) / temperature);
    sum += out[c];
  }
  for (double& value : out) value /= sum;
}

std::vector<double> Probabilities(const Scores& scores, double temperature) {
  std::vector<double> all(scores.logits.size());
  for (size_t i = 0; i < scores.images(); ++i) {
    Softmax(scores.Row(i), temperature, std::span(all).subspan(i * scores.classes, scores.classes));
  }
  return all;
}

}  // namespace tundish::evaluation
