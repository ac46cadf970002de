#include "worker/evaluation/ranking.h"

#include <algorithm>
#include <numeric>

namespace tundish::evaluation {

std::optional<RankingScores> Rank(const std::vector<double>& scores,
                                  const std::vector<bool>& positive) {
  const auto positives = static_cast<double>(std::ranges::count(positive, true));
  const auto negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return std::nullopt;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&scores](size_t a, size_t b) { return scores[a] > scores[b]; });

  RankingScores result;
  double true_above = 0;
  double false_above = 0;
  double won = 0;  // Pairs of a positive above a negative; whole and half numbers, so exact.
  for (size_t first = 0; first < order.size();) {
    double tied_true = 0;
    double tied_false = 0;
    const double score = scores[order[first]];
    for (; first < order.size() && scores[order[first]] == score; ++first) {
      ++(positive[order[first]] ? tied_true : tied_false);
    }
    won += tied_false * (true_above + tied_true / 2);
    true_above += tied_true;
    false_above += tied_false;
    result.average_precision += tied_true / positives * (true_above / (true_above + false_above));
  }
  result.auroc = won / (positives * negatives);
  return result;
}

}  // namespace tundish::evaluation
