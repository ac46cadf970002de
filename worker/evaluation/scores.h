#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>

namespace tundish::evaluation {

/// What a model says about some images, and what they are.
struct Scores {
  size_t classes = 0;
  /// Row-major, images x classes.
  std::vector<float> logits;
  /// Index of the class; kUnknown where nobody knows.
  std::vector<int32_t> labels;

  static constexpr int32_t kUnknown = -1;

  size_t images() const { return labels.size(); }
  std::span<const float> Row(size_t image) const {
    return std::span(logits).subspan(image * classes, classes);
  }
};

/// InvalidArgument, naming the image, for a size that does not fit, a label that is neither a class
/// nor kUnknown, and a logit that is not finite.
absl::Status Check(const Scores& scores);

/// The same images in an order that depends on their labels and logits alone, so that sums over
/// them have the same bits in whatever order they came.
Scores Canonical(const Scores& scores);

/// softmax(logits / temperature). Requires temperature > 0 and out.size() == logits.size().
void Softmax(std::span<const float> logits, double temperature, std::span<double> out);

/// Of every image, row-major.
std::vector<double> Probabilities(const Scores& scores, double temperature);

/// Index of the highest score, the first of equal ones.
template <class T>
size_t Highest(std::span<const T> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c) {
    if (scores[c] > scores[best]) best = c;
  }
  return best;
}

}  // namespace tundish::evaluation
