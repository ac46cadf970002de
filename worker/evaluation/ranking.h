#pragma once

#include <optional>
#include <vector>

namespace tundish::evaluation {

struct RankingScores {
  /// Probability that a positive image scores higher than a negative one, half for equal scores.
  double auroc = 0;
  /// Sum over the distinct scores, from the highest: gain of recall times precision there.
  double average_precision = 0;
};

/// How well scores tell positives from negatives. Equal to scikit-learn's roc_auc_score and
/// average_precision_score. Nothing without positives or without negatives. Requires one
/// `positive` per score, and no NaN.
std::optional<RankingScores> Rank(const std::vector<double>& scores,
                                  const std::vector<bool>& positive);

}  // namespace tundish::evaluation
