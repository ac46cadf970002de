#include "worker/evaluation/decisions.h"

#include <gtest/gtest.h>

namespace tundish::evaluation {
namespace {

void AddCost(v1::EvaluationSpec& spec, const char* truth, const char* predicted, double cost) {
  v1::MistakeCost& entry = *spec.add_costs();
  entry.set_truth(truth);
  entry.set_predicted(predicted);
  entry.set_cost(cost);
}

TEST(MakeStakesTest, TheNarrowerEntryStandsWhateverTheOrder) {
  const std::vector<std::string> classes = {"good", "pore", "crack"};
  v1::EvaluationSpec spec;
  AddCost(spec, "crack", "good", 50);
  AddCost(spec, "crack", "", 5);
  AddCost(spec, "", "good", 10);
  AddCost(spec, "pore", "pore", 3);  // Right answers cost nothing, whatever is written.
  const auto stakes = MakeStakes(spec, classes);
  ASSERT_TRUE(stakes.ok()) << stakes.status();
  EXPECT_EQ(stakes->costs, (std::vector<double>{0, 1, 1, 10, 0, 1, 50, 5, 0}));
  EXPECT_TRUE(stakes->good.empty());
  EXPECT_TRUE(stakes->chooses_thresholds);
}

TEST(WeighTest, EscapesAreDefectsThatPassAndOverkillGoodPartsThatDoNot) {
  v1::EvaluationSpec spec;
  spec.add_good_classes("good");
  spec.add_good_classes("stain");
  AddCost(spec, "crack", "", 4);
  const auto stakes = MakeStakes(spec, {"good", "stain", "crack"});
  ASSERT_TRUE(stakes.ok()) << stakes.status();
  // 10 good of which one is called a stain and two a crack; 4 cracks of which one passes.
  const v1::Decisions got = Weigh(*stakes, 3, {7, 1, 2, 0, 0, 0, 0, 1, 3});
  EXPECT_DOUBLE_EQ(got.overkill_rate(), 0.2);
  EXPECT_DOUBLE_EQ(got.escape_rate(), 0.25);
  EXPECT_DOUBLE_EQ(got.mean_cost(), (1 + 2 + 4) / 14.0);
  const v1::Decisions without_defects = Weigh(*stakes, 3, {7, 1, 2, 0, 0, 0, 0, 0, 0});
  EXPECT_FALSE(without_defects.has_escape_rate());
  EXPECT_TRUE(without_defects.has_overkill_rate());
}

TEST(DecideTest, TakesTheHighestMultipleOfItsThreshold) {
  const std::vector<double> probabilities = {0.6, 0.3, 0.1};
  struct Case {
    std::vector<double> thresholds;
    size_t want;
  };
  for (const Case& c : {Case{{}, 0}, Case{{0.4, 0.3, 0.3}, 0}, Case{{0.6, 0.2, 0.2}, 1},
                        Case{{0.6, 0.37, 0.03}, 2}, Case{{0.6, 0.3, 0.1}, 0}}) {
    EXPECT_EQ(Decide(probabilities, c.thresholds), c.want);
  }
}

}  // namespace
}  // namespace tundish::evaluation
