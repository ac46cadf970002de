#include "worker/evaluation/predictions.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

namespace tundish::evaluation {
namespace {

TEST(PredictTest, CalibratesThenDecides) {
  const std::vector<float> logits = {2, 0};
  const Prediction plain = Predict(logits, 1, {});
  EXPECT_EQ(plain.predicted, 0U);
  EXPECT_EQ(plain.decided, 0U);
  EXPECT_NEAR(plain.probabilities[0], 1 / (1 + std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(plain.uncertainty, plain.probabilities[1], 1e-12);
  const Prediction careful = Predict(logits, 2, std::vector<double>{0.8, 0.2});
  EXPECT_EQ(careful.predicted, 0U);
  EXPECT_EQ(careful.decided, 1U) << "0.27 / 0.2 is more than 0.73 / 0.8";
  EXPECT_NEAR(careful.probabilities[1], 1 / (1 + std::exp(1.0)), 1e-12);
}

TEST(ToJsonLineTest, SaysWhatIsKnown) {
  const Prediction prediction{
      .predicted = 1, .decided = 0, .probabilities = {0.25, 0.75}, .uncertainty = 0.25};
  const std::vector<std::string> classes = {"good", "crack \"deep\""};
  EXPECT_EQ(ToJsonLine({.path = "a/ä.png", .label = "good", .prediction = prediction}, classes),
            "{\"path\":\"a/ä.png\",\"label\":\"good\",\"predicted\":\"crack \\\"deep\\\"\","
            "\"decided\":\"good\",\"probabilities\":{\"good\":0.25,\"crack "
            "\\\"deep\\\"\":0.75},\"uncertainty\":0.25}\n");
  const auto unlabelled = nlohmann::json::parse(
      ToJsonLine({.path = "b.png", .prediction = prediction, .order = 7}, classes));
  EXPECT_FALSE(unlabelled.contains("label"));
  EXPECT_EQ(unlabelled["order"], 7);
}

}  // namespace
}  // namespace tundish::evaluation
