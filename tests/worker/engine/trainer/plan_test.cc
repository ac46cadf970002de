#include "worker/engine/trainer/plan.h"

#include <optional>

#include <gtest/gtest.h>

#include "worker/engine/trainer/evaluator.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/gradient_reducer.h"
#include "worker/engine/trainer/state_copy.h"
#include "worker/engine/trainer/sums.h"

namespace tundish::trainer {
namespace {

TEST(TrainingPlanTest, SaysWhenToEvaluateAndToSave) {
  struct Case {
    const char* name;
    uint32_t every_epochs, every_steps;
    std::vector<uint32_t> evaluations, checkpoints;
  };
  // 10 images, batches of 4: passes end within steps 2 (12), 4 (20), 7 (32), 9 (40) → after 3, 5,
  // 8, 10 steps.
  const Case cases[] = {
      {"every pass", 1, 0, {3, 5, 8, 10, 11}, {3, 5, 8, 10}},
      {"every second pass", 2, 4, {5, 10, 11}, {4, 8}},
      {"at the end", 0, 100, {11}, {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TrainingPlan plan;
    plan.global_batch = 4;
    plan.train_images = 10;
    plan.total_steps = 11;
    plan.evaluate_every_epochs = c.every_epochs;
    plan.checkpoint_every_steps = c.every_steps;
    std::vector<uint32_t> evaluations;
    std::vector<uint32_t> checkpoints;
    for (uint32_t steps = 0; steps <= plan.total_steps; ++steps) {
      if (plan.EvaluationDue(steps)) evaluations.push_back(steps);
      if (plan.CheckpointDue(steps)) checkpoints.push_back(steps);
    }
    EXPECT_EQ(evaluations, c.evaluations);
    EXPECT_EQ(checkpoints, c.checkpoints);
  }
}

TEST(MakePlanTest, WarmsUpOverATwentiethUnlessToldOtherwise) {
  struct Case {
    std::optional<uint32_t> asked;
    int64_t want;
  };
  for (const Case& c : {Case{{}, 10}, Case{0, 0}, Case{7, 7}, Case{1000, 200}}) {
    v1::Assignment assignment;
    assignment.set_total_steps(200);
    assignment.mutable_data()->add_classes("a");
    v1::ModelSpec& model = *assignment.mutable_spec()->mutable_model();
    model.set_image_size(16);
    model.set_patch_size(8);
    model.set_hidden(32);
    model.set_depth(1);
    model.set_heads(4);
    model.set_mlp_hidden(64);
    model.set_channels(1);
    model.set_layer_norm_eps(1e-6);
    v1::TrainingSpec& training = *assignment.mutable_spec()->mutable_training();
    training.set_global_batch(8);
    if (c.asked.has_value()) training.mutable_schedule()->set_warmup_steps(*c.asked);
    EXPECT_EQ(MakePlan(assignment).schedule.warmup_steps, c.want);
    assignment.mutable_spec()->mutable_parallel()->set_tensor(3);
    EXPECT_THROW(MakePlan(assignment), FatalError);
  }
}

TEST(MakePlaceTest, RefusesMembersThatDoNotFit) {
  v1::Assignment assignment;
  assignment.mutable_spec()->mutable_parallel()->set_tensor(2);
  assignment.mutable_spec()->mutable_parallel()->set_data(1);
  assignment.add_members()->add_devices("cpu:0");
  EXPECT_THROW(MakePlace(assignment), FatalError);
  assignment.add_members()->add_devices("cpu:7");
  assignment.set_tp(1);
  EXPECT_EQ(MakePlace(assignment).device, "cpu:7");
  assignment.set_tp(2);
  EXPECT_THROW(MakePlace(assignment), FatalError);
}

TEST(LayOutBucketsTest, GoesFromLastToFirstWithASmallStart) {
  struct Case {
    std::vector<int64_t> bytes;
    std::vector<std::vector<size_t>> want;
  };
  const Case cases[] = {
      {{}, {}},
      {{5}, {{0}}},
      {{10, 10, 10, 10, 10, 10}, {{5}, {4, 3, 2, 1}, {0}}},
      {{100, 1, 1, 100}, {{3}, {2, 1, 0}}},
  };
  for (const Case& c : cases) EXPECT_EQ(LayOutBuckets(c.bytes, 40), c.want);
}

TEST(SummarizeTest, CountsRatesPerClass) {
  // truth a: 3 right, 1 called b; truth b: 2 called a; class c has no image.
  const v1::Evaluation evaluation = Summarize({"a", "b", "c"}, {3, 1, 0, 2, 0, 0, 0, 0, 0}, 12.0);
  EXPECT_EQ(evaluation.images(), 6U);
  EXPECT_DOUBLE_EQ(evaluation.loss(), 2.0);
  EXPECT_DOUBLE_EQ(evaluation.accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(evaluation.balanced_accuracy(), 0.375);
  EXPECT_DOUBLE_EQ(evaluation.classes(0).precision(), 0.6);
  EXPECT_EQ(evaluation.classes(2).images(), 0U);
}

TEST(SumsTest, NormAddsSlotsInOrderAndRefusesUnknownOnes) {
  v1::StepSums sums;
  sums.add_norm_squared_bits(ToBits(9.0F));
  sums.add_norm_squared_bits(ToBits(16.0F));
  sums.add_norm_known(true);
  sums.add_norm_known(false);
  EXPECT_THROW(GlobalNorm(sums, 2), FatalError);
  sums.set_norm_known(1, true);
  EXPECT_DOUBLE_EQ(GlobalNorm(sums, 2), 5.0);
  EXPECT_TRUE(AllFinite(sums));
  sums.set_nonfinite_bits(ToBits(1.0F));
  EXPECT_FALSE(AllFinite(sums));
}

TEST(HashBytesTest, SeesEveryByte) {
  std::vector<unsigned char> bytes(101, 0);
  const uint64_t zeros = HashBytes(bytes.data(), bytes.size());
  EXPECT_NE(zeros, HashBytes(bytes.data(), bytes.size() - 1));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = 1;
    EXPECT_NE(HashBytes(bytes.data(), bytes.size()), zeros) << "byte " << i;
    bytes[i] = 0;
  }
}

}  // namespace
}  // namespace tundish::trainer
