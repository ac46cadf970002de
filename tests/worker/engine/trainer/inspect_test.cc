// What is checked beside training: each fault is made for real, in a rank of a small cluster.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/device/cpu_backend.h"
#include "worker/engine/observe/module_path.h"
#include "worker/engine/trainer/exchange.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/replica_check.h"

namespace tundish::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::StepPoint;

at::Tensor Value(Rank& rank, const std::string& name) {
  for (const model::Parameter& parameter : rank.trainer->shard()->model.arena().parameters()) {
    if (parameter.spec.name == name) return parameter.value.detach();
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

class InspectTest : public ::testing::Test {
 protected:
  InspectTest() { WriteTinyImages(images_.path(), 12); }

  v1::JobSpec Spec(int tensor, int data) const {
    v1::JobSpec spec = TinySpec(images_.path(), tensor, data);
    spec.mutable_training()->set_steps(8);
    spec.mutable_checkpoints()->set_every_steps(100);
    return spec;
  }

  Cluster Make(const v1::JobSpec& spec) const { return Cluster(spec, artifacts_.path()); }

  const TemporaryFolder images_;
  const TemporaryFolder artifacts_;
};

TEST_F(InspectTest, AFirstStepOutsideTheAskedPrecisionFailsTheJob) {
  v1::JobSpec spec = Spec(1, 1);
  spec.mutable_training()->set_precision(v1::BF16);
  spec.mutable_training()->set_steps(2);
  {
    Cluster sound(spec, artifacts_.path());
    sound.Run(1);
    EXPECT_EQ(sound.rank(0, 0).error, "");
    for (const v1::RankNotice& notice : sound.rank(0, 0).recorder->notices) {
      EXPECT_EQ(notice.type(), "precision_slow") << notice.ShortDebugString();
    }
    EXPECT_GT(sound.rank(0, 0).recorder->evaluation_batches, 0);
  }
  Cluster broken(spec, artifacts_.path());
  broken.rank(0, 0).recorder->at_point = [](StepPoint point, uint32_t step) {
    if (point != StepPoint::kForwardDone || step != 0) return;
    const observe::ModuleScope block("blocks", 1);
    at::linear(at::ones({2, 4}), at::ones({4, 4}));
  };
  broken.Run(1);
  EXPECT_THAT(broken.rank(0, 0).error,
              AllOf(HasSubstr("aten::linear in blocks.1 (forward)"), HasSubstr("fp32"),
                    HasSubstr("bf16"), HasSubstr("dp=0 tp=0")));
  EXPECT_THAT(broken.rank(0, 0).recorder->steps, IsEmpty());
}

TEST_F(InspectTest, ATensorOfAnotherDeviceFailsTheFirstStepOnly) {
  for (const uint32_t at_step : {0U, 1U}) {
    Cluster cluster(Spec(1, 1), artifacts_.path());
    cluster.rank(0, 0).recorder->at_point = [at_step](StepPoint point, uint32_t step) {
      if (point != StepPoint::kForwardDone || step != at_step) return;
      const at::Tensor elsewhere = at::ones({2}, at::TensorOptions(at::kFloat).device(at::kMeta));
      at::cat({elsewhere, elsewhere}, 0);
    };
    cluster.Run(1);
    if (at_step == 0) {
      EXPECT_THAT(cluster.rank(0, 0).error, AllOf(HasSubstr("aten::"), HasSubstr("on meta")));
    } else {
      EXPECT_EQ(cluster.rank(0, 0).error, "") << "later steps are not watched";
    }
  }
}

TEST_F(InspectTest, ADamagedReplicaFailsTheJobAndIsNamed) {
  struct Case {
    const char* name;
    int tensor;
    int data;
    int dp;  ///< The damaged rank.
    int tp;
    const char* parameter;
    uint32_t every;    ///< check_replicas_every_steps
    uint32_t at_step;  ///< Damaged once this step is committed.
    const char* after;
  };
  const Case cases[] = {
      {"after the first step", 1, 3, 1, 0, "blocks.1.mlp.fc1.weight", 0, 0, "after step 0 "},
      {"at the next check", 1, 3, 2, 0, "blocks.0.norm1.bias", 3, 3, "after step 5 "},
      {"a cut parameter", 2, 3, 1, 1, "blocks.0.attn.qkv.weight", 0, 0, "after step 0 "},
      {"of a row", 3, 1, 0, 2, "blocks.0.attn.proj.bias", 0, 0, "after step 0 "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    v1::JobSpec spec = Spec(c.tensor, c.data);
    spec.mutable_training()->set_check_replicas_every_steps(c.every);
    if (c.tensor == 3) {
      spec.mutable_model()->set_hidden(36);
      spec.mutable_model()->set_heads(3);
      spec.mutable_model()->set_mlp_hidden(72);
    }
    Cluster cluster(spec, artifacts_.path());
    Rank& damaged = cluster.rank(c.dp, c.tp);
    damaged.recorder->at_point = [&](StepPoint point, uint32_t step) {
      if (point != StepPoint::kCommitted || step != c.at_step) return;
      Value(damaged, c.parameter).mutable_data_ptr<float>()[3] += 1e-3F;
    };
    cluster.Run(1);
    EXPECT_THAT(damaged.error, AllOf(HasSubstr(fmt::format("'{}'", c.parameter)),
                                     HasSubstr(fmt::format("dp={}", c.dp)),
                                     HasSubstr(fmt::format("tp={}", c.tp)), HasSubstr(c.after)));
    for (const auto& rank : cluster.ranks()) EXPECT_NE(rank->error, "");
  }
}

TEST_F(InspectTest, NobodyTrainsOnSamplesOfAnother) {
  const auto fails = [](const std::vector<uint64_t>& positions, std::vector<uint32_t> samples) {
    trainer::TrainingPlan plan;
    plan.shape = {.image_size = 8,
                  .patch_size = 4,
                  .channels = 1,
                  .hidden = 8,
                  .depth = 1,
                  .heads = 1,
                  .mlp_hidden = 8,
                  .classes = 2};
    plan.seed = 5;
    plan.global_batch = 4;
    plan.train_images = 10;
    const trainer::Place place;
    device::CpuBackend backend;
    trainer::Shard shard(plan, place, backend.device());
    trainer::Arrangement arrangement(
        1, c10::make_intrusive<MemoryStore>(std::make_shared<SharedTable>()));
    const data::SampleOrder order(plan.seed, plan.train_images);
    data::Batch batch{.step = 3, .positions = positions, .samples = std::move(samples)};
    if (batch.samples.empty()) {
      for (const uint64_t p : positions) batch.samples.push_back(order.IndexAt(p));
    }
    try {
      trainer::CheckReplicas(plan, place, shard, arrangement, backend, batch);
    } catch (const trainer::FatalError& error) {
      EXPECT_EQ(error.reason(), "samples_differ");
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("step 3"), HasSubstr("dp=0"), HasSubstr("positions 12 to 15")));
      return true;
    }
    return false;
  };
  EXPECT_FALSE(fails({12, 13, 14, 15}, {}));
  EXPECT_FALSE(fails({15, 14, 13, 12}, {}));  // The order inside a step does not count.
  EXPECT_TRUE(fails({12, 13, 14, 14}, {}));
  EXPECT_TRUE(fails({12, 13, 14}, {}));
  EXPECT_TRUE(fails({12, 13, 14, 15, 16}, {}));
  EXPECT_TRUE(fails({12, 13, 14, 15}, {0, 0, 0, 0}));
}

TEST_F(InspectTest, OddOnesAreTheMinority) {
  EXPECT_THAT(trainer::OddOnes({4}), IsEmpty());
  EXPECT_THAT(trainer::OddOnes({4, 4, 4}), IsEmpty());
  EXPECT_THAT(trainer::OddOnes({4, 5}), ElementsAre(1U));
  EXPECT_THAT(trainer::OddOnes({5, 4, 4}), ElementsAre(0U));
  EXPECT_THAT(trainer::OddOnes({4, 5, 4, 6}), ElementsAre(1U, 3U));
}

TEST_F(InspectTest, TextTravelsInNumbers) {
  for (const std::string text : {"", "a", "12345678", "blocks.3.mlp (forward)"}) {
    EXPECT_EQ(trainer::UnpackText(trainer::PackText(text, 3)), text.substr(0, 24));
  }
}

TEST(ArrangementTest, AnAbortWakesWhoWaitsForNoCollective) {
  const auto make = [] {
    return trainer::Arrangement(1,
                                c10::make_intrusive<MemoryStore>(std::make_shared<SharedTable>()));
  };
  int woken = 0;
  trainer::Arrangement early = make();
  early.AtAbort([&] { ++woken; });
  EXPECT_EQ(woken, 0);
  early.Abort();
  EXPECT_EQ(woken, 1);
  trainer::Arrangement late = make();
  late.Abort();
  late.AtAbort([&] { ++woken; });
  EXPECT_EQ(woken, 2);
  late.Drop();
  const int before = woken;
  late.Abort();
  EXPECT_EQ(woken, before) << "called after Drop, when who waited may be gone";
}

// Rank (1, 0) computes with weights that overflow, in step kBadStep only. Powers of two, so that
// they come back to the bit.
constexpr uint32_t kBadStep = 4;

void Overflow(Cluster& cluster, bool every_step) {
  Rank& rank = cluster.rank(1, 0);
  const auto scale = [&rank](float first, float second) {
    const c10::AutoGradMode no_grad(false);
    Value(rank, "blocks.1.mlp.fc1.weight").mul_(first);
    Value(rank, "blocks.1.mlp.fc2.weight").mul_(second);
  };
  rank.recorder->at_point = [scale, every_step](StepPoint point, uint32_t step) {
    if (step < kBadStep || (!every_step && step > kBadStep)) return;
    if (point == StepPoint::kFetched) scale(0x1p120F, 0x1p60F);
    if (point == StepPoint::kCommitted) scale(0x1p-120F, 0x1p-60F);
  };
}

TEST_F(InspectTest, ANonFiniteStepStopsBeforeTheUpdateAndSaysWhere) {
  Cluster cluster(Spec(2, 2), artifacts_.path());
  Overflow(cluster, false);
  cluster.Run(1);
  for (const auto& rank : cluster.ranks()) {
    EXPECT_EQ(rank->recorder->steps.size(), kBadStep);
    EXPECT_EQ(rank->standing.step(), kBadStep);
  }
  EXPECT_THAT(cluster.rank(0, 0).error,
              AllOf(HasSubstr("step 4 "), HasSubstr("blocks.1.mlp (forward)"), HasSubstr("aten::"),
                    HasSubstr("dp=1 tp=0")));
}

TEST_F(InspectTest, ASkippedStepAdvancesTheCursorButNotTheOptimizer) {
  v1::JobSpec spec = Spec(2, 2);
  spec.mutable_training()->set_on_non_finite(v1::SKIP_STEP);
  spec.mutable_training()->set_max_skipped_steps(1);
  Cluster cluster(spec, artifacts_.path());
  Overflow(cluster, false);
  cluster.Run(1);
  for (const auto& rank : cluster.ranks()) {
    ASSERT_EQ(rank->error, "");
    EXPECT_EQ(rank->trainer->shard()->step, 8U);
    EXPECT_EQ(rank->trainer->shard()->updates, 7);
    for (const v1::StepDone& step : rank->recorder->steps) {
      EXPECT_EQ(step.skipped(), step.step() == kBadStep);
    }
    EXPECT_EQ(Cluster::State(*rank), Cluster::State(cluster.rank(1 - rank->dp, rank->tp)));
  }
  const std::vector<v1::RankNotice>& notices = cluster.rank(0, 0).recorder->notices;
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].type(), "step_skipped");
  EXPECT_THAT(notices[0].message(), AllOf(HasSubstr("step 4 "), HasSubstr("blocks.1.mlp")));

  Cluster again(spec, artifacts_.path());
  Overflow(again, true);
  again.Run(1);
  EXPECT_THAT(again.rank(0, 0).error,
              AllOf(HasSubstr("step 5 "), HasSubstr("1 steps were skipped")));
}

TEST_F(InspectTest, AProfileHasPhasesOperatorsAndCollectives) {
  v1::JobSpec spec = Spec(2, 2);
  spec.mutable_trace()->add_steps(2);
  spec.mutable_trace()->add_steps(3);
  Cluster cluster(spec, artifacts_.path());
  cluster.Run(1);
  for (const auto& rank : cluster.ranks()) {
    ASSERT_EQ(rank->error, "");
    ASSERT_EQ(rank->recorder->notices.size(), 1U);
    const v1::RankNotice& notice = rank->recorder->notices[0];
    EXPECT_EQ(notice.artifact().kind(), "trace");
    EXPECT_EQ(notice.artifact().step(), 4U);
    std::ifstream file(std::filesystem::path(artifacts_.path()) / notice.artifact().path());
    const nlohmann::json trace = nlohmann::json::parse(file, nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::map<std::string, int> seen;
    std::map<std::string, int> where;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      ++seen[fmt::format("{}/{}", std::string(event["cat"]), std::string(event["name"]))];
      EXPECT_GE(event["dur"].get<double>(), 0);
      if (event.contains("args")) ++where[event["args"]["at"]];
    }
    EXPECT_EQ(seen["steps/commit"], 2);
    EXPECT_GE(seen["steps/forward"], 2);
    EXPECT_GE(seen["steps/backward"], 2);
    EXPECT_GT(seen["operators/aten::addmm"], 0);
    EXPECT_GT(seen["collectives/all_reduce"], 0);
    EXPECT_GT(seen["gradient buckets/all_reduce"], 0);
    EXPECT_GT(where["blocks.1.mlp"], 0);
    EXPECT_GT(where["blocks.1.mlp backward"], 0);
    EXPECT_GT(where["step 3"], 0);
  }
}

}  // namespace
}  // namespace tundish::testing
