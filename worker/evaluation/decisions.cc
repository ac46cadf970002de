#include "worker/evaluation/decisions.h"

#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "worker/evaluation/scores.h"

namespace tundish::evaluation {
namespace {

/// How narrowly an entry speaks: the narrower one stands.
int Breadth(const v1::MistakeCost& cost) {
  if (cost.truth().empty()) return 2;
  return cost.predicted().empty() ? 1 : 0;
}

absl::StatusOr<size_t> Find(const std::vector<std::string>& classes, const char* field,
                            const std::string& name) {
  const auto found = std::ranges::find(classes, name);
  if (found != classes.end()) return static_cast<size_t>(found - classes.begin());
  return absl::InvalidArgumentError(fmt::format("{} names the class '{}': expected one of {}",
                                                field, name, fmt::join(classes, ", ")));
}

}  // namespace

absl::StatusOr<Stakes> MakeStakes(const v1::EvaluationSpec& spec,
                                  const std::vector<std::string>& classes) {
  const size_t n = classes.size();
  Stakes stakes{.costs = std::vector<double>(n * n, 1),
                .chooses_thresholds = spec.costs_size() > 0};
  std::vector<const v1::MistakeCost*> entries;
  for (const v1::MistakeCost& cost : spec.costs()) entries.push_back(&cost);
  std::ranges::stable_sort(entries, std::ranges::greater(),
                           [](const v1::MistakeCost* cost) { return Breadth(*cost); });
  for (const v1::MistakeCost* cost : entries) {
    size_t truth = n;
    size_t predicted = n;
    if (!cost->truth().empty()) {
      const auto found = Find(classes, "evaluation.costs.truth", cost->truth());
      if (!found.ok()) return found.status();
      truth = *found;
    }
    if (!cost->predicted().empty()) {
      const auto found = Find(classes, "evaluation.costs.predicted", cost->predicted());
      if (!found.ok()) return found.status();
      predicted = *found;
    }
    for (size_t t = 0; t < n; ++t) {
      for (size_t p = 0; p < n; ++p) {
        if ((truth == n || t == truth) && (predicted == n || p == predicted)) {
          stakes.costs[t * n + p] = cost->cost();
        }
      }
    }
  }
  for (size_t c = 0; c < n; ++c) stakes.costs[c * n + c] = 0;
  if (spec.good_classes_size() > 0) stakes.good.assign(n, false);
  for (const std::string& name : spec.good_classes()) {
    const auto found = Find(classes, "evaluation.good_classes", name);
    if (!found.ok()) return found.status();
    stakes.good[*found] = true;
  }
  return stakes;
}

size_t Decide(std::span<const double> probabilities, std::span<const double> thresholds) {
  if (thresholds.empty()) return Highest(probabilities);
  size_t best = 0;
  for (size_t c = 1; c < probabilities.size(); ++c) {
    if (probabilities[c] / thresholds[c] > probabilities[best] / thresholds[best]) best = c;
  }
  return best;
}

std::vector<uint32_t> Confusion(size_t classes, const std::vector<int32_t>& labels,
                                const std::vector<size_t>& decided) {
  std::vector<uint32_t> confusion(classes * classes, 0);
  for (size_t i = 0; i < labels.size(); ++i) {
    ++confusion[static_cast<size_t>(labels[i]) * classes + decided[i]];
  }
  return confusion;
}

v1::Decisions Weigh(const Stakes& stakes, size_t classes, const std::vector<uint32_t>& confusion) {
  double cost = 0;
  double images = 0;
  double defects = 0, escaped = 0, good = 0, killed = 0;
  for (size_t truth = 0; truth < classes; ++truth) {
    for (size_t decided = 0; decided < classes; ++decided) {
      const double count = confusion[truth * classes + decided];
      cost += count * stakes.costs[truth * classes + decided];
      images += count;
      if (stakes.good.empty()) continue;
      (stakes.good[truth] ? good : defects) += count;
      if (stakes.good[truth] && !stakes.good[decided]) killed += count;
      if (!stakes.good[truth] && stakes.good[decided]) escaped += count;
    }
  }
  v1::Decisions decisions;
  if (images > 0) decisions.set_mean_cost(cost / images);
  if (defects > 0) decisions.set_escape_rate(escaped / defects);
  if (good > 0) decisions.set_overkill_rate(killed / good);
  return decisions;
}

}  // namespace tundish::evaluation
