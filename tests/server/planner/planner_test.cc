#include "server/planner/planner.h"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/planner/formulas.h"
#include "server/spec/presets.h"
#include "server/spec/resolve.h"

namespace tundish::planner {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

v1::JobSpec Spec(const std::string& preset, int batch, v1::Precision precision = v1::BF16) {
  v1::JobSpec spec;
  spec.set_name("plan");
  spec.mutable_data()->set_folder("/data");
  spec.mutable_model()->set_preset(preset);
  spec.mutable_parallel()->set_device("cuda");
  spec.mutable_training()->set_steps(1);
  spec.mutable_training()->set_global_batch(batch);
  spec.mutable_training()->set_precision(precision);
  const auto resolved = spec::ResolveSpec(spec);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *resolved;
}

TEST(FormulasTest, GigaflopParametersAndActivationsOfPublishedModels) {
  struct Case {
    const char* preset;
    double gflop;             // per image, training, 1000 classes
    std::int64_t parameters;  // timm's count, 1000 classes
    double autocast_mib;      // activations per image; 0: not checked
  };
  const Case cases[] = {
      {"vit_tiny_patch16", 7.5, 5'717'416, 0},
      {"vit_small_patch16", 27.6, 22'050'664, 0},
      {"vit_base_patch16", 105.4, 86'567'656, 62},
      {"vit_large_patch16", 369.3, 304'326'632, 166},
      {"vit_huge_patch14", 1003.8, 632'045'800, 361},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.preset);
    const v1::ModelSpec model = *spec::FindPreset(c.preset);
    EXPECT_NEAR(FlopsPerImage(model, 1000) / 1e9, c.gflop, 0.051);
    EXPECT_EQ(Parameters(model, 1000), c.parameters);
    if (c.autocast_mib > 0) {
      EXPECT_NEAR(ActivationBytesPerImage(model, v1::BF16, 1) / 1048576.0, c.autocast_mib, 0.5);
    }
    // 4 bytes instead of 2 for all but what autocast keeps in fp32 anyway.
    EXPECT_EQ(ActivationBytesPerImage(model, v1::FP32, 1),
              ActivationBytesPerImage(model, v1::BF16, 1) / 36 * 64);
  }
}

TEST(FormulasTest, TensorDegreeCutsBlocksOnly) {
  const v1::ModelSpec model = *spec::FindPreset("vit_large_patch16");
  const std::int64_t h = 1024;
  const std::int64_t blocks = 24 * 12 * h * h;
  for (const int t : {1, 2, 4, 8, 16}) {
    // P_rank ≈ P_replicated + 12·h²·L/t, up to the biases.
    const double estimate = Parameters(model, 1000) - blocks + blocks / t;
    EXPECT_NEAR(ParametersPerRank(model, 1000, t) / estimate, 1, 0.02) << t;
  }
  EXPECT_EQ(ActivationBytesPerImage(model, v1::BF16, 4), 197 * h * (12 + 6) * 24);
}

TEST(FormulasTest, TokensAndMacsOfAnotherShape) {
  v1::ModelSpec model = *spec::FindPreset("vit_cell");
  EXPECT_EQ(Tokens(model), 65);
  // 6 blocks of 65·(12·192²) + 2·65²·192, 1·16²·64·192 for the embedding, 192·2 for the head.
  EXPECT_EQ(ForwardMacs(model, 2),
            6.0 * (65 * 12 * 192 * 192 + 2 * 65 * 65 * 192) + 256.0 * 64 * 192 + 192 * 2);
  model.set_mlp_hidden(192);
  EXPECT_EQ(ForwardMacs(model, 2),
            6.0 * (65 * 6 * 192 * 192 + 2 * 65 * 65 * 192) + 256.0 * 64 * 192 + 192 * 2);
}

TEST(EstimateMemoryTest, AddsItsTerms) {
  const v1::JobSpec spec = Spec("vit_base_patch16", 32);
  const MemoryEstimate memory = EstimateMemory(spec, 1000);
  EXPECT_EQ(memory.parameter_bytes, 86'567'656u * 18);
  EXPECT_EQ(memory.activation_bytes, 32u * ActivationBytesPerImage(spec.model(), v1::BF16, 1));
  EXPECT_EQ(memory.overhead_bytes, kGiB);
  EXPECT_EQ(memory.total_bytes(),
            memory.parameter_bytes + memory.activation_bytes + memory.overhead_bytes);
  v1::JobSpec cpu = spec;
  cpu.mutable_parallel()->set_device("cpu");
  EXPECT_EQ(EstimateMemory(cpu, 1000).overhead_bytes, kGiB / 2);  // 256 MiB + the cache's 256
}

TEST(EstimateMemoryTest, WaysToNeedLess) {
  v1::JobSpec spec = Spec("vit_large_patch16", 256);
  spec.mutable_parallel()->set_data(8);
  spec.mutable_training()->set_micro_batch(32);
  const std::int64_t h = 1024;
  const auto plain = EstimateMemory(spec, 1000, {});
  const auto checkpointed = EstimateMemory(spec, 1000, {.checkpointing = true});
  EXPECT_EQ(plain.activation_bytes, 32u * 24 * 197 * h * 36);
  EXPECT_EQ(checkpointed.activation_bytes, 32u * (24 * 4 * 197 * h + 197 * h * 36));
  const auto zero1 = EstimateMemory(spec, 1000, {.zero1 = true});
  EXPECT_EQ(plain.parameter_bytes, std::uint64_t{304'326'632} * 18);
  EXPECT_EQ(zero1.parameter_bytes, std::uint64_t{304'326'632} * 12);  // 8 + 2 + 16 / 8
  EXPECT_EQ(BytesPerParameter(v1::FP32, true, 2), 16) << "held twice over two saves nothing";
}

TEST(AccumulationStepsTest, RoundsUpTwice) {
  v1::JobSpec spec = Spec("vit_cell", 33);
  EXPECT_EQ(AccumulationSteps(spec), 1u);
  spec.mutable_parallel()->set_data(2);
  spec.mutable_training()->set_micro_batch(4);
  EXPECT_EQ(AccumulationSteps(spec), 5u);  // 17 samples in fours
}

TEST(CheckFitsTest, NamesTheTermAndWhatWouldFit) {
  struct Case {
    const char* preset;
    int batch;
    std::uint64_t memory;
    const char* message;  // empty: fits
  };
  const Case cases[] = {
      {"vit_large_patch16", 32, 0, ""},
      {"vit_large_patch16", 32, 16 * kGiB, ""},
      {"vit_large_patch16", 256, 32 * kGiB,
       "the largest part is activations with 41.55 GiB; training.micro_batch=128 would fit"},
      {"vit_huge_patch14", 1, 8 * kGiB,
       "the largest part is weights, gradients and AdamW with 10.57 GiB; parallel.tensor=2 with "
       "training.micro_batch=1 would fit"},
      {"vit_huge_patch14", 1, 12 * kGiB - 100 * (kGiB >> 10),
       "training.checkpoint_blocks=1 with training.micro_batch=1 would fit"},
      {"vit_huge_patch14", 1, kGiB, "no tensor degree that divides model.heads makes it fit"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.preset);
    const absl::Status status = CheckFits(Spec(c.preset, c.batch), c.memory);
    EXPECT_EQ(status.ok(), std::string(c.message).empty()) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

std::string Show(const v1::PlanOption& option) {
  return fmt::format("{}x{} micro {} x{} {}", option.parallel().tensor(), option.parallel().data(),
                     option.micro_batch(), option.accumulation(), option.fits() ? "fits" : "no");
}

TEST(PlanTest, TheAskedForWayLeadsWhenItFits) {
  v1::JobSpec spec = Spec("vit_base_patch16", 32);
  spec.mutable_parallel()->set_tensor(2);
  spec.mutable_parallel()->set_data(4);
  spec.mutable_training()->set_micro_batch(8);
  const auto options =
      Plan(spec, {.kind = "cuda", .count = 8, .largest_host = 8, .memory_bytes = 80 * kGiB});
  ASSERT_GE(options.size(), 4u);
  EXPECT_EQ(Show(options[0]), "2x4 micro 8 x1 fits");
  EXPECT_THAT(options[0].explanation(), HasSubstr("as asked: "));
  EXPECT_EQ(Show(options[1]), "1x8 micro 4 x1 fits");
  EXPECT_EQ(Show(options[2]), "1x4 micro 8 x1 fits");
  EXPECT_EQ(options[0].device_memory_bytes(), 80 * kGiB);
  EXPECT_NEAR(options[0].flops_per_image() / 1e9, 105.4, 0.05);
}

TEST(PlanTest, WhatCannotRunSaysWhyAndAlternativesComeFirst) {
  v1::JobSpec spec = Spec("vit_large_patch16", 512);
  const auto options =
      Plan(spec, {.kind = "cuda", .count = 4, .largest_host = 4, .memory_bytes = 16 * kGiB});
  ASSERT_GE(options.size(), 2u);
  EXPECT_EQ(Show(options[0]), "1x4 micro 32 x4 fits");
  const v1::PlanOption& asked =
      *std::ranges::find_if(options, [](const auto& o) { return !o.fits(); });
  EXPECT_EQ(Show(asked), "1x1 micro 512 x1 no");
  EXPECT_THAT(asked.explanation(), HasSubstr("the largest part is activations"));

  spec.mutable_parallel()->set_data(8);
  for (const v1::PlanOption& option : Plan(spec, {.kind = "cuda", .count = 4, .largest_host = 4})) {
    if (option.fits()) continue;
    EXPECT_THAT(option.explanation(), HasSubstr("needs 8 cuda devices, the cluster has 4"));
  }
  spec.mutable_parallel()->set_data(1);
  spec.mutable_parallel()->set_tensor(4);
  EXPECT_THAT(Plan(spec, {.kind = "cuda", .count = 4, .largest_host = 2}).back().explanation(),
              HasSubstr("does not fit one host: the largest has 2"));
}

double Term(const v1::PlanOption& option, const std::string& name) {
  for (const v1::PlanTerm& term : option.terms()) {
    if (term.name() != name) continue;
    EXPECT_NE(term.formula(), "");
    return term.value();
  }
  ADD_FAILURE() << "no term " << name;
  return 0;
}

TEST(PlanTest, PredictsTimeAndMoneyWithTheirFormulas) {
  v1::JobSpec spec = Spec("vit_base_patch16", 256);
  spec.mutable_training()->set_steps(3600);
  const DevicePool pool{.kind = "cuda",
                        .count = 8,
                        .largest_host = 8,
                        .memory_bytes = 80 * kGiB,
                        .rates = {.peak_flops = 312e12,
                                  .efficiency = 0.445,
                                  .link_bytes_per_second = 300e9,
                                  .dollars_per_device_hour = 4}};
  const auto options = Plan(spec, pool);
  for (const v1::PlanOption& option : options) {
    if (!option.fits()) continue;
    SCOPED_TRACE(option.explanation());
    EXPECT_EQ(Term(option, "step_seconds"), option.step_seconds());
    EXPECT_DOUBLE_EQ(option.hours(), option.step_seconds());  // 3600 steps
    EXPECT_DOUBLE_EQ(option.dollars(),
                     option.hours() * option.parallel().tensor() * option.parallel().data() * 4);
    EXPECT_EQ(Term(option, "parameters"), option.parameter_bytes());
    EXPECT_EQ(Term(option, "activations"), option.activation_bytes());
    EXPECT_EQ(Term(option, "dollars"), option.dollars());
  }
  // 256 images of 105.4 GFLOP on one device.
  EXPECT_NEAR(options[0].step_seconds(), 256 * 105.4e9 / (312e12 * 0.445), 0.001);
  // Of the others the fastest leads: all devices, no tensor parallelism.
  EXPECT_EQ(Show(options[1]), "1x8 micro 32 x1 fits");
  EXPECT_LT(options[1].step_seconds(), options[0].step_seconds() / 7.5);
  EXPECT_TRUE(std::ranges::is_sorted(options.begin() + 1, options.end(), {}, [](const auto& o) {
    return std::pair(!o.fits(), o.hours());
  }));
}

TEST(PlanTest, SaysWhatItDoesNotKnow) {
  v1::JobSpec spec = Spec("vit_base_patch16", 32);
  spec.mutable_training()->clear_steps();
  spec.mutable_training()->set_epochs(10);
  DevicePool pool{.kind = "cuda", .count = 1, .largest_host = 1};
  const auto explanation = [&](const Length& length = {}) {
    return Plan(spec, pool, length)[0].explanation();
  };
  EXPECT_THAT(explanation(), HasSubstr("device memory not known: whether it fits is not known"));
  EXPECT_THAT(explanation(), HasSubstr("time not known: the device's peak rate is not known"));
  pool.memory_bytes = 80 * kGiB;
  pool.rates.peak_flops = 1e14;
  EXPECT_THAT(explanation(), HasSubstr("the device's efficiency is not known"));
  pool.rates.efficiency = 0.3;
  EXPECT_THAT(explanation(), HasSubstr("hours not known: the number of training images is not"));
  EXPECT_THAT(explanation({.train_images = 1000}), HasSubstr("the hosts have no price"));
  pool.rates.dollars_per_device_hour = 1;
  EXPECT_THAT(explanation({.train_images = 1000}), testing::Not(HasSubstr("not known")));
}

TEST(PlanTest, SavesMemoryWhereItLacks) {
  v1::JobSpec spec = Spec("vit_large_patch16", 1024);
  spec.mutable_parallel()->set_data(8);
  spec.mutable_training()->set_micro_batch(128);
  const auto options =
      Plan(spec, {.kind = "cuda", .count = 8, .largest_host = 8, .memory_bytes = 16 * kGiB});
  const auto find = [&](bool checkpointing, bool zero1) {
    return std::ranges::find_if(options, [&](const auto& o) {
      return o.parallel().tensor() == 1 && o.parallel().data() == 8 && o.fits() &&
             o.activation_checkpointing() == checkpointing && o.zero1() == zero1;
    });
  };
  ASSERT_NE(find(false, false), options.end());
  EXPECT_EQ(find(false, false)->micro_batch(), 32u);
  EXPECT_EQ(find(false, true)->micro_batch(), 64u);
  EXPECT_EQ(find(true, false)->micro_batch(), 128u);
}

// The figures of the report this project started from: 8 A100 against Trainium2.
TEST(CostTest, TheFieldReport) {
  const double gpu = Dollars(22, 8, 32.77 / 8, 38.50);
  const double trn = Dollars(19, 64, 24.54 / 64, 39.10);
  EXPECT_NEAR(gpu, 759.44, 0.005);
  EXPECT_NEAR(trn, 505.36, 0.005);
  EXPECT_NEAR(8 * gpu, 6075.52, 0.005);
  EXPECT_NEAR(8 * trn, 4042.88, 0.005);
  const Saving large = Compare(gpu, trn, 8, 0);
  EXPECT_NEAR(large.share, 0.335, 0.0005);
  EXPECT_NEAR(large.per_month, 2032.64, 0.005);
  // ViT-B: 8 h, 260 → about 190 with storage.
  EXPECT_NEAR(Dollars(8, 8, 32.77 / 8), 262, 1);
  EXPECT_NEAR(Compare(260, 190, 8, 0).share, 0.27, 0.001);
  // 120,000 yuan at 7.1 per dollar by ViT-L alone; the report says about 10 months.
  EXPECT_NEAR(Compare(gpu, trn, 8, 120'000 / 7.1).months_to_pay_back, 8.3, 0.05);
  EXPECT_EQ(Compare(1, 2, 8, 100).months_to_pay_back, std::numeric_limits<double>::infinity());
}

// "ViT-L ran out of memory on a 32 GB chip even with checkpointing", found out by crashing.
TEST(CheckFitsTest, TheFieldReportsCrash) {
  v1::JobSpec spec = Spec("vit_large_patch16", 2048);
  const auto checkpointed = EstimateMemory(spec, 12, {.checkpointing = true});
  EXPECT_GT(checkpointed.total_bytes(), 32 * kGiB);
  EXPECT_THAT(std::string(CheckFits(spec, 32 * kGiB).message()),
              HasSubstr("the largest part is activations"));
  const auto options =
      Plan(spec, {.kind = "cuda", .count = 1, .largest_host = 1, .memory_bytes = 32 * kGiB});
  EXPECT_FALSE(std::ranges::find_if(options, [](const auto& option) {
                 return option.explanation().starts_with("as asked");
               })->fits());
  EXPECT_TRUE(options[0].fits()) << "what would fit leads";
  // At the report's batch of 32 the formula lets it pass: what grew there was the lazy graph.
  EXPECT_TRUE(CheckFits(Spec("vit_large_patch16", 32), 32 * kGiB).ok());
}

TEST(CostTest, AllReduceMovesEveryByteNearlyTwice) {
  EXPECT_EQ(AllReduceSeconds(1e9, 1, 1e9), 0);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(1e9, 2, 1e9), 1);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(1e9, 8, 1e9), 1.75);
  EXPECT_EQ(AllReduceSeconds(1e9, 8, 0), 0);
}

TEST(CostTest, CommunicationGrowsWithTheTensorDegree) {
  v1::JobSpec spec = Spec("vit_large_patch16", 64);
  const Rates rates{.peak_flops = 1e14, .efficiency = 0.4, .link_bytes_per_second = 1e11};
  double before = 0;
  for (const int tensor : {1, 2, 4, 8}) {
    spec.mutable_parallel()->set_tensor(tensor);
    const StepTime step = EstimateStep(spec, 12, false, rates);
    EXPECT_GE(step.tensor_parallel, before);
    EXPECT_DOUBLE_EQ(step.compute * tensor, 64 * FlopsPerImage(spec.model(), 12) / 4e13);
    EXPECT_DOUBLE_EQ(EstimateStep(spec, 12, true, rates).compute, step.compute * 4 / 3);
    before = step.tensor_parallel;
  }
  EXPECT_GT(before, 0);
}

TEST(PlanTest, AnEmptyClusterStillAnswers) {
  const auto options = Plan(Spec("vit_cell", 32), {.kind = "cuda"});
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].explanation(), "as asked: needs 1 cuda devices, the cluster has 0");
}

TEST(PlanTest, NeverMoreThanSixteenAndTheAskedForIsAmongThem) {
  v1::JobSpec spec = Spec("vit_huge_patch14", 4096);
  spec.mutable_model()->set_heads(240);
  spec.mutable_model()->set_hidden(240 * 8);
  spec.mutable_model()->set_mlp_hidden(240 * 32);
  spec.mutable_parallel()->set_data(3);
  spec.mutable_training()->set_micro_batch(1366);
  const auto options =
      Plan(spec, {.kind = "cuda", .count = 1000, .largest_host = 1000, .memory_bytes = 8 * kGiB});
  EXPECT_EQ(options.size(), 16u);
  int asked = 0;
  for (const auto& option : options) asked += option.explanation().starts_with("as asked") ? 1 : 0;
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tundish::planner
