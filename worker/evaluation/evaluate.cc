#include "worker/evaluation/evaluate.h"

#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "worker/evaluation/calibration.h"
#include "worker/evaluation/decisions.h"
#include "worker/evaluation/ranking.h"
#include "worker/evaluation/thresholds.h"

namespace tundish::evaluation {
namespace {

double MeanLoss(const Scores& scores) {
  double sum = 0;
  for (size_t i = 0; i < scores.images(); ++i) {
    const std::span<const float> row = scores.Row(i);
    const double highest = row[Highest(row)];
    double scale = 0;
    for (const float logit : row) scale += std::exp(logit - highest);
    sum += std::log(scale) + highest - row[static_cast<size_t>(scores.labels[i])];
  }
  return sum / static_cast<double>(scores.images());
}

std::vector<size_t> PredictAll(const Scores& scores) {
  std::vector<size_t> predicted;
  predicted.reserve(scores.images());
  for (size_t i = 0; i < scores.images(); ++i) predicted.push_back(Highest(scores.Row(i)));
  return predicted;
}

std::vector<size_t> DecideAll(const Scores& scores, const std::vector<double>& probabilities,
                              const std::vector<double>& thresholds) {
  std::vector<size_t> decided;
  decided.reserve(scores.images());
  for (size_t i = 0; i < scores.images(); ++i) {
    decided.push_back(
        Decide(std::span(probabilities).subspan(i * scores.classes, scores.classes), thresholds));
  }
  return decided;
}

/// What follows from the counts alone.
void FillCounts(const std::vector<std::string>& classes, const std::vector<uint32_t>& confusion,
                v1::Evaluation& evaluation) {
  const size_t n = classes.size();
  double correct = 0, images = 0;
  double recalls = 0, with_images = 0;
  double f1s = 0, seen = 0;
  for (size_t c = 0; c < n; ++c) {
    double of_class = 0;
    double called_class = 0;
    for (size_t other = 0; other < n; ++other) {
      of_class += confusion[c * n + other];
      called_class += confusion[other * n + c];
    }
    const double right = confusion[c * n + c];
    v1::ClassResult& result = *evaluation.add_classes();
    result.set_name(classes[c]);
    result.set_images(static_cast<uint32_t>(of_class));
    result.set_recall(of_class > 0 ? right / of_class : 0);
    result.set_precision(called_class > 0 ? right / called_class : 0);
    result.set_f1(of_class + called_class > 0 ? 2 * right / (of_class + called_class) : 0);
    images += of_class;
    correct += right;
    recalls += result.recall();
    f1s += result.f1();
    if (of_class > 0) ++with_images;
    if (of_class + called_class > 0) ++seen;
  }
  evaluation.mutable_confusion()->Add(confusion.begin(), confusion.end());
  evaluation.set_images(static_cast<uint32_t>(images));
  evaluation.set_accuracy(correct / images);
  evaluation.set_balanced_accuracy(recalls / with_images);
  evaluation.set_macro_f1(f1s / seen);
}

void FillRankings(const Scores& scores, const std::vector<double>& probabilities,
                  v1::Evaluation& evaluation) {
  std::vector<double> of_class(scores.images());
  std::vector<bool> positive(scores.images());
  double aurocs = 0, precisions = 0, counted = 0;
  for (size_t c = 0; c < scores.classes; ++c) {
    for (size_t i = 0; i < scores.images(); ++i) {
      of_class[i] = probabilities[i * scores.classes + c];
      positive[i] = scores.labels[i] == static_cast<int32_t>(c);
    }
    const std::optional<RankingScores> ranking = Rank(of_class, positive);
    if (!ranking.has_value()) continue;
    v1::ClassResult& result = *evaluation.mutable_classes(static_cast<int>(c));
    result.set_auroc(ranking->auroc);
    result.set_average_precision(ranking->average_precision);
    aurocs += ranking->auroc;
    precisions += ranking->average_precision;
    ++counted;
  }
  if (counted == 0) return;
  evaluation.set_auroc(aurocs / counted);
  evaluation.set_average_precision(precisions / counted);
}

}  // namespace

absl::StatusOr<v1::Evaluation> Evaluate(const Scores& given,
                                        const std::vector<std::string>& classes,
                                        const v1::EvaluationSpec& spec) {
  if (classes.size() != given.classes || given.images() == 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} images with scores for {} classes, {} of them named: expected at least one "
                    "image and a name for each class",
                    given.images(), given.classes, classes.size()));
  }
  if (absl::Status valid = Check(given); !valid.ok()) return valid;
  for (size_t i = 0; i < given.images(); ++i) {
    if (given.labels[i] != Scores::kUnknown) continue;
    return absl::InvalidArgumentError(fmt::format("image {} has no label to compare with", i));
  }
  const absl::StatusOr<Stakes> stakes = MakeStakes(spec, classes);
  if (!stakes.ok()) return stakes.status();

  const Scores scores = Canonical(given);
  const std::vector<double> probabilities = Probabilities(scores, 1);
  v1::Evaluation evaluation;
  evaluation.set_loss(MeanLoss(scores));
  const std::vector<uint32_t> confusion =
      Confusion(scores.classes, scores.labels, PredictAll(scores));
  FillCounts(classes, confusion, evaluation);
  FillRankings(scores, probabilities, evaluation);

  evaluation.set_temperature(FitTemperature(scores));
  const std::vector<double> calibrated = Probabilities(scores, evaluation.temperature());
  evaluation.set_calibration_error(CalibrationError(scores, probabilities));
  evaluation.set_calibrated_error(CalibrationError(scores, calibrated));

  *evaluation.mutable_decisions() = Weigh(*stakes, scores.classes, confusion);
  if (!stakes->chooses_thresholds) return evaluation;
  const std::vector<double> thresholds = ChooseThresholds(scores, calibrated, *stakes);
  for (size_t c = 0; c < scores.classes; ++c) {
    evaluation.mutable_classes(static_cast<int>(c))->set_threshold(thresholds[c]);
  }
  const std::vector<uint32_t> decided =
      Confusion(scores.classes, scores.labels, DecideAll(scores, calibrated, thresholds));
  v1::Decisions& decisions = *evaluation.mutable_threshold_decisions();
  decisions = Weigh(*stakes, scores.classes, decided);
  decisions.mutable_confusion()->Add(decided.begin(), decided.end());
  return evaluation;
}

}  // namespace tundish::evaluation
