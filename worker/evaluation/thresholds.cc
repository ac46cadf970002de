#include "worker/evaluation/thresholds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tundish::evaluation {
namespace {

constexpr int kMostSweeps = 20;

/// From this threshold of a class downwards an image goes to it, and the sum changes by `change`.
struct Crossing {
  double threshold = 0;
  double change = 0;
};

class Search {
 public:
  Search(const Scores& scores, const std::vector<double>& probabilities, const Stakes& stakes)
      : scores_(scores), probabilities_(probabilities), stakes_(stakes) {
    images_of_.assign(scores.classes, 0);
    for (const int32_t label : scores.labels) ++images_of_[static_cast<size_t>(label)];
  }

  /// Lowers the cost of `thresholds`; returns what it comes to.
  double Descend(std::vector<double>& thresholds) const {
    double cost = Cost(thresholds);
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      const double before = cost;
      for (size_t c = 0; c < scores_.classes; ++c) {
        if (images_of_[c] == 0) continue;
        const double old = thresholds[c];
        thresholds[c] = BestFor(c, thresholds);
        // Rounding may put an image on the other side of a threshold: what counts is the decision.
        const double now = Cost(thresholds);
        if (now < cost) {
          cost = now;
        } else {
          thresholds[c] = old;
        }
      }
      if (cost >= before) break;
    }
    return cost;
  }

 private:
  std::span<const double> Row(size_t image) const {
    return std::span(probabilities_).subspan(image * scores_.classes, scores_.classes);
  }

  double CostOf(size_t image, size_t decided) const {
    return stakes_.costs[static_cast<size_t>(scores_.labels[image]) * scores_.classes + decided];
  }

  double Cost(const std::vector<double>& thresholds) const {
    double sum = 0;
    for (size_t i = 0; i < scores_.images(); ++i) sum += CostOf(i, Decide(Row(i), thresholds));
    return sum;
  }

  /// The class that would be decided for if `without` were not there.
  size_t BestOther(size_t image, size_t without, const std::vector<double>& thresholds) const {
    const std::span<const double> row = Row(image);
    size_t best = without == 0 ? 1 : 0;
    for (size_t c = best + 1; c < row.size(); ++c) {
      if (c != without && row[c] / thresholds[c] > row[best] / thresholds[best]) best = c;
    }
    return best;
  }

  double BestFor(size_t c, const std::vector<double>& thresholds) const {
    std::vector<Crossing> crossings;
    for (size_t i = 0; i < scores_.images(); ++i) {
      const size_t other = BestOther(i, c, thresholds);
      const double threshold = Row(i)[c] / (Row(i)[other] / thresholds[other]);
      if (threshold > 0) {
        crossings.push_back({threshold, CostOf(i, c) - CostOf(i, other)});
      }
    }
    std::ranges::stable_sort(crossings, std::ranges::greater(), &Crossing::threshold);
    double best = thresholds[c];
    double least = std::numeric_limits<double>::infinity();
    double sum = 0;
    double above = std::numeric_limits<double>::infinity();
    for (size_t next = 0; next <= crossings.size();) {
      const double below = next < crossings.size() ? crossings[next].threshold : 0;
      const double candidate = Between(below, above);
      // Of equally good ones the one closest to what there is.
      if (sum < least ||
          (sum == least && Distance(candidate, thresholds[c]) < Distance(best, thresholds[c]))) {
        least = sum;
        best = candidate;
      }
      if (next == crossings.size()) break;
      for (; next < crossings.size() && crossings[next].threshold == below; ++next) {
        sum += crossings[next].change;
      }
      above = below;
    }
    return best;
  }

  static double Between(double below, double above) {
    if (std::isinf(above)) return below > 0 && !std::isinf(below) ? below * 2 : 1;
    return below > 0 ? std::sqrt(below) * std::sqrt(above) : above / 2;
  }

  static double Distance(double a, double b) { return std::abs(std::log(a / b)); }

  const Scores& scores_;  // All three are the caller's, for its function.
  const std::vector<double>& probabilities_;
  const Stakes& stakes_;
  std::vector<uint32_t> images_of_;
};

}  // namespace

std::vector<double> ChooseThresholds(const Scores& scores, const std::vector<double>& probabilities,
                                     const Stakes& stakes) {
  const size_t classes = scores.classes;
  std::vector<double> equal(classes, 1);
  if (classes < 2 || scores.images() == 0) return equal;
  std::vector<double> by_cost(classes, 1);
  for (size_t truth = 0; truth < classes; ++truth) {
    const auto row = std::span(stakes.costs).subspan(truth * classes, classes);
    const double missed = std::accumulate(row.begin(), row.end(), 0.0) / (classes - 1);
    if (missed > 0) by_cost[truth] = 1 / missed;
  }
  const Search search(scores, probabilities, stakes);
  const double cost_of_equal = search.Descend(equal);
  const double cost_of_by_cost = search.Descend(by_cost);
  std::vector<double> best = cost_of_by_cost < cost_of_equal ? by_cost : equal;
  const double sum = std::accumulate(best.begin(), best.end(), 0.0);
  for (double& threshold : best) threshold /= sum;
  return best;
}

}  // namespace tundish::evaluation
