// Held against scikit-learn on the same predictions (make_fixtures.py).
#include "worker/evaluation/evaluate.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/evaluation/calibration.h"

namespace tundish::evaluation {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> Names(size_t count) {
  std::vector<std::string> names;
  for (size_t c = 0; c < count; ++c) names.push_back(fmt::format("class{}", c));
  return names;
}

struct Fixture {
  Scores scores;
  Json want;
};

Fixture Load(const std::string& name) {
  std::ifstream file(fmt::format("{}/{}.json", TUNDISH_EVALUATION_FIXTURES, name));
  const Json json = Json::parse(file);
  Fixture fixture{.scores = {.logits = json["logits"].get<std::vector<float>>(),
                             .labels = json["labels"].get<std::vector<int32_t>>()},
                  .want = json["want"]};
  fixture.scores.classes = fixture.scores.logits.size() / fixture.scores.images();
  return fixture;
}

constexpr double kClose = 1e-9;

void ExpectOptional(const Json& want, bool has, double value) {
  ASSERT_EQ(has, !want.is_null());
  if (!has) return;
  EXPECT_NEAR(value, want.get<double>(), kClose);
}

TEST(EvaluateTest, AgreesWithScikitLearn) {
  for (const char* name :
       {"imbalanced", "many_ties", "class_without_images", "two_classes", "few"}) {
    SCOPED_TRACE(name);
    const auto [scores, want] = Load(name);
    const auto got = Evaluate(scores, Names(scores.classes), {});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->images(), scores.images());
    EXPECT_NEAR(got->loss(), want["loss"].get<double>(), kClose);
    EXPECT_NEAR(got->accuracy(), want["accuracy"].get<double>(), kClose);
    EXPECT_NEAR(got->balanced_accuracy(), want["balanced_accuracy"].get<double>(), kClose);
    EXPECT_NEAR(got->macro_f1(), want["macro_f1"].get<double>(), kClose);
    EXPECT_NEAR(got->auroc(), want["auroc"].get<double>(), kClose);
    EXPECT_NEAR(got->average_precision(), want["average_precision"].get<double>(), kClose);
    EXPECT_NEAR(got->calibration_error(), want["calibration_error"].get<double>(), kClose);
    // scipy's search ends where the likelihood is flat to rounding.
    EXPECT_NEAR(got->temperature(), want["temperature"].get<double>(), 1e-5);
    EXPECT_NEAR(got->calibrated_error(), want["calibrated_error"].get<double>(), 1e-5);
    EXPECT_EQ(std::vector<uint32_t>(got->confusion().begin(), got->confusion().end()),
              want["confusion"].get<std::vector<uint32_t>>());
    for (size_t c = 0; c < scores.classes; ++c) {
      SCOPED_TRACE(c);
      const v1::ClassResult& result = got->classes(static_cast<int>(c));
      EXPECT_EQ(result.name(), fmt::format("class{}", c));
      EXPECT_EQ(result.images(), want["images"][c].get<uint32_t>());
      EXPECT_NEAR(result.precision(), want["precision"][c].get<double>(), kClose);
      EXPECT_NEAR(result.recall(), want["recall"][c].get<double>(), kClose);
      EXPECT_NEAR(result.f1(), want["f1"][c].get<double>(), kClose);
      ExpectOptional(want["class_auroc"][c], result.has_auroc(), result.auroc());
      ExpectOptional(want["class_average_precision"][c], result.has_average_precision(),
                     result.average_precision());
      EXPECT_EQ(result.threshold(), 0) << "nobody asked for thresholds";
    }
    EXPECT_NEAR(got->decisions().mean_cost(), 1 - got->accuracy(), kClose);
    EXPECT_FALSE(got->decisions().has_escape_rate());
    EXPECT_FALSE(got->has_threshold_decisions());
  }
}

TEST(EvaluateTest, TheOrderOfImagesChangesNoBit) {
  v1::EvaluationSpec spec;
  spec.add_good_classes("class0");
  v1::MistakeCost& cost = *spec.add_costs();
  cost.set_predicted("class0");
  cost.set_cost(7.3);
  const Scores scores = Load("imbalanced").scores;
  const std::string want = Evaluate(scores, Names(4), spec)->SerializeAsString();
  std::mt19937 random(3);
  std::vector<size_t> order(scores.images());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = 0; round < 5; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    Scores shuffled{.classes = scores.classes};
    for (const size_t i : order) {
      shuffled.labels.push_back(scores.labels[i]);
      for (const float logit : scores.Row(i)) shuffled.logits.push_back(logit);
    }
    EXPECT_EQ(Evaluate(shuffled, Names(4), spec)->SerializeAsString(), want);
  }
}

TEST(EvaluateTest, OneImage) {
  const Scores scores{.classes = 2, .logits = {0, 1}, .labels = {1}};
  const auto got = Evaluate(scores, Names(2), {});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->accuracy(), 1);
  EXPECT_EQ(got->balanced_accuracy(), 1);
  EXPECT_EQ(got->macro_f1(), 1);
  EXPECT_EQ(got->auroc(), 0);
  EXPECT_FALSE(got->classes(1).has_auroc()) << "all images belong to it";
  EXPECT_FALSE(got->classes(0).has_auroc()) << "none does";
  EXPECT_EQ(got->temperature(), kLeastTemperature) << "always right";
}

TEST(EvaluateTest, AllTheSameScore) {
  const Scores scores{.classes = 2, .logits = {3, 3, 3, 3, 3, 3, 3, 3}, .labels = {0, 1, 1, 0}};
  v1::EvaluationSpec spec;
  v1::MistakeCost& cost = *spec.add_costs();
  cost.set_truth("class1");
  cost.set_cost(5);
  const auto got = Evaluate(scores, Names(2), spec);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->classes(0).auroc(), 0.5);
  EXPECT_EQ(got->classes(0).average_precision(), 0.5);
  EXPECT_EQ(got->accuracy(), 0.5) << "the first of equal classes";
  EXPECT_NEAR(got->loss(), std::log(2), kClose);
  EXPECT_EQ(got->decisions().mean_cost(), 2.5);
  EXPECT_EQ(got->threshold_decisions().mean_cost(), 0.5) << "all called class1";
}

TEST(EvaluateTest, RefusesWhatItCannotJudge) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  v1::EvaluationSpec misspelt;
  misspelt.add_good_classes("gut");
  v1::EvaluationSpec costs;
  costs.add_costs()->set_predicted("class7");
  struct Case {
    Scores scores;
    v1::EvaluationSpec spec;
    const char* says;
  };
  for (const Case& c : {
           Case{{2, {0, 1, nan, 1}, {0, 1}}, {}, "image 1 has a score of nan"},
           Case{{2, {0, 1, 0, -infinity}, {0, 1}}, {}, "image 1 has a score of -inf"},
           Case{{2, {0, 1}, {2}}, {}, "image 0 has label 2: expected 0 to 1"},
           Case{{2, {0, 1}, {Scores::kUnknown}}, {}, "image 0 has no label"},
           Case{{2, {0, 1, 2}, {1}}, {}, "3 scores for 1 images and 2 classes"},
           Case{{2, {}, {}}, {}, "at least one image"},
           Case{{3, {0, 1, 2}, {1}}, {}, "2 of them named"},
           Case{{2, {0, 1}, {1}}, misspelt, "evaluation.good_classes names the class 'gut'"},
           Case{{2, {0, 1}, {1}}, costs, "expected one of class0, class1"},
       }) {
    SCOPED_TRACE(c.says);
    const auto got = Evaluate(c.scores, Names(2), c.spec);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(c.says));
  }
}

TEST(EvaluateTest, ThresholdsOfTwoClassesAreTheBestThereAre) {
  const auto [scores, want] = Load("two_classes");
  v1::EvaluationSpec spec;
  spec.add_good_classes("class0");
  v1::MistakeCost& cost = *spec.add_costs();
  cost.set_truth("class1");
  cost.set_predicted("class0");
  cost.set_cost(8);
  const auto got = Evaluate(scores, Names(2), spec);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NEAR(got->threshold_decisions().mean_cost(), want["least_cost"].get<double>(), kClose);
  EXPECT_LT(got->threshold_decisions().mean_cost(), got->decisions().mean_cost());
  EXPECT_LT(got->threshold_decisions().escape_rate(), got->decisions().escape_rate());
  EXPECT_GT(got->threshold_decisions().overkill_rate(), got->decisions().overkill_rate());
  EXPECT_NEAR(got->classes(0).threshold() + got->classes(1).threshold(), 1, kClose);
  EXPECT_EQ(got->threshold_decisions().confusion_size(), 4);
  EXPECT_EQ(got->decisions().confusion_size(), 0);
}

TEST(EvaluateTest, AnyCostsAreLoweredAndNoClassWithoutImagesIsRuledOut) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> price(0, 20);
  for (const char* name : {"imbalanced", "many_ties", "class_without_images", "few"}) {
    const Scores scores = Load(name).scores;
    for (int round = 0; round < 20; ++round) {
      SCOPED_TRACE(fmt::format("{} {}", name, round));
      v1::EvaluationSpec spec;
      for (size_t truth = 0; truth < scores.classes; ++truth) {
        for (size_t predicted = 0; predicted < scores.classes; ++predicted) {
          v1::MistakeCost& cost = *spec.add_costs();
          cost.set_truth(fmt::format("class{}", truth));
          cost.set_predicted(fmt::format("class{}", predicted));
          cost.set_cost(price(random));
        }
      }
      const auto got = Evaluate(scores, Names(scores.classes), spec);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_LE(got->threshold_decisions().mean_cost(), got->decisions().mean_cost());
      for (const v1::ClassResult& result : got->classes()) {
        EXPECT_GT(result.threshold(), 0);
        EXPECT_LT(result.threshold(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace tundish::evaluation
