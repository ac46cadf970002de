#include "worker/engine/model/vit.h"

#include <limits>
#include <map>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker/engine/model/run_batch.h"
#include "tests/worker/engine/parallel/thread_group.h"

namespace tundish::model {
namespace {

VitShape Tiny(Pooling pooling, double drop_path_rate = 0) {
  return {.image_size = 16,
          .patch_size = 4,
          .channels = 3,
          .hidden = 32,
          .depth = 3,
          .heads = 4,
          .mlp_hidden = 64,
          .classes = 5,
          .pooling = pooling,
          .class_token = pooling == Pooling::kClassToken,
          .norm_after_pooling = pooling == Pooling::kMean,
          .drop_path_rate = drop_path_rate};
}

class VitParityTest : public testing::TestWithParam<std::tuple<int, Pooling, double>> {};

TEST_P(VitParityTest, AnyTensorDegreeComputesTheSame) {
  const auto [degree, pooling, drop] = GetParam();
  const VitShape shape = Tiny(pooling, drop);
  const at::Tensor images = at::randn({6, 3, 16, 16});
  const at::Tensor labels = at::randint(0, 5, {6}, at::kLong);
  std::optional<MaskKey> key;
  if (drop > 0) key = MaskKey{.seed = 9, .step = 2, .first_position = 31};
  const Outcome whole = RunBatch(shape, 1, images, labels, key);
  const Outcome cut = RunBatch(shape, degree, images, labels, key);
  EXPECT_LE(Deviation(cut.logits, whole.logits), 1e-5);
  for (const auto& [name, gradient] : whole.gradients) {
    EXPECT_TRUE(at::equal(cut.values.at(name), whole.values.at(name)))
        << name << " starts otherwise at degree " << degree;
    EXPECT_LE(Deviation(cut.gradients.at(name), gradient), 2e-5) << name;
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name << " gets no gradient";
  }
}

INSTANTIATE_TEST_SUITE_P(All, VitParityTest,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(Pooling::kClassToken, Pooling::kMean),
                                          testing::Values(0.0, 0.5)));

TEST(VitTest, TheSameRunGivesTheSameBits) {
  const VitShape shape = Tiny(Pooling::kClassToken, 0.2);
  const at::Tensor images = at::randn({4, 3, 16, 16});
  const at::Tensor labels = at::randint(0, 5, {4}, at::kLong);
  const Outcome first = RunBatch(shape, 2, images, labels, MaskKey{});
  const Outcome second = RunBatch(shape, 2, images, labels, MaskKey{});
  for (const auto& [name, gradient] : first.gradients) {
    EXPECT_TRUE(at::equal(second.gradients.at(name), gradient)) << name;
  }
}

TEST(VitTest, ReplicatedGradientsAreBitEqualOverTheGroup) {
  const at::Tensor images = at::randn({4, 3, 16, 16});
  const at::Tensor labels = at::randint(0, 5, {4}, at::kLong);
  std::vector<std::map<std::string, at::Tensor>> gradients(4);
  parallel::RunRanks(4, [&](parallel::GroupSlot& slot) {
    at::set_num_threads(1);
    Vit vit(Tiny(Pooling::kClassToken), slot, at::kCPU);
    vit.InitializeFromSeed(1);
    torch::autograd::backward({at::cross_entropy_loss(vit.Forward(images, {}), labels)}, {});
    for (const Parameter& parameter : vit.parameters()) {
      if (!parameter.sharded()) {
        gradients[static_cast<size_t>(slot.rank())][parameter.spec.name] = parameter.value.grad();
      }
    }
  });
  for (size_t rank = 1; rank < 4; ++rank) {
    for (const auto& [name, gradient] : gradients[0]) {
      EXPECT_TRUE(at::equal(gradients[rank].at(name), gradient)) << name << " on rank " << rank;
    }
  }
}

TEST(VitTest, DropPathOfASlicedBatchEqualsTheWholeBatch) {
  const VitShape shape = Tiny(Pooling::kMean, 0.5);
  parallel::GroupSlot slot(0, 1);
  Vit vit(shape, slot, at::kCPU);
  vit.InitializeFromSeed(3);
  const at::Tensor images = at::randn({8, 3, 16, 16});
  const MaskKey key{.seed = 5, .step = 1, .first_position = 64};
  const at::Tensor whole = vit.Forward(images, key).detach();
  const MaskKey second_half{.seed = 5, .step = 1, .first_position = 68};
  const at::Tensor half = vit.Forward(images.narrow(0, 4, 4), second_half).detach();
  EXPECT_LE(Deviation(half, whole.narrow(0, 4, 4)), 1e-6);
  EXPECT_GT(Deviation(vit.Forward(images, {}).detach(), whole), 1e-3) << "DropPath does nothing";
}

/// bf16 autocast on this thread, as the trainer enables it.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(VitTest, AutocastComputesInHalfAndKeepsFullGradients) {
  for (const Pooling pooling : {Pooling::kClassToken, Pooling::kMean}) {
    const VitShape shape = Tiny(pooling, 0.2);
    const at::Tensor images = at::randn({4, 3, 16, 16});
    const at::Tensor labels = at::randint(0, 5, {4}, at::kLong);
    const Outcome whole = RunBatch(shape, 1, images, labels, MaskKey{});
    for (const int degree : {1, 2}) {
      parallel::RunRanks(degree, [&](parallel::GroupSlot& slot) {
        at::set_num_threads(1);
        Vit vit(shape, slot, at::kCPU);
        vit.InitializeFromSeed(42);
        at::Tensor logits;
        {
          const Autocast autocast;
          logits = vit.Forward(images, MaskKey{});
        }
        EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
        EXPECT_LE(Deviation(logits.detach().to(at::kFloat), whole.logits), 0.05);
        torch::autograd::backward({at::cross_entropy_loss(logits.to(at::kFloat), labels)}, {});
        for (const Parameter& parameter : vit.parameters()) {
          const at::Tensor& gradient = parameter.value.grad();
          EXPECT_EQ(gradient.scalar_type(), at::kFloat) << parameter.spec.name;
          const at::Tensor want = CutForRank(whole.gradients.at(parameter.spec.name),
                                             parameter.spec, slot.rank(), degree);
          // Key biases have a zero gradient but for rounding: attention ignores a shift of all
          // keys.
          if (parameter.spec.name.ends_with("qkv.bias")) continue;
          EXPECT_LE(Deviation(gradient, want), 0.1) << parameter.spec.name;
        }
      });
    }
  }
}

TEST(VitTest, LoadFullTakesSlicesAndNamesWhatDoesNotFit) {
  const VitShape shape = Tiny(Pooling::kClassToken);
  std::map<std::string, at::Tensor> full;
  for (const ParameterSpec& spec : ListParameters(shape))
    full[spec.name] = at::randn(spec.full_shape);
  const parallel::GroupSlot slot(1, 2);
  Vit vit(shape, slot, at::kCPU);
  vit.arena().parameters()[0].exp_avg.fill_(1);
  vit.LoadFull(full);
  for (const Parameter& parameter : vit.parameters()) {
    EXPECT_TRUE(at::equal(parameter.value.detach(),
                          CutForRank(full.at(parameter.spec.name), parameter.spec, 1, 2)));
  }
  EXPECT_EQ(vit.parameters()[0].exp_avg.abs().max().item<float>(), 0);

  const auto fails_with = [&vit](std::map<std::string, at::Tensor> weights,
                                 const std::string& want) {
    try {
      vit.LoadFull(weights);
      FAIL() << "expected an error with " << want;
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(want), std::string::npos) << error.what();
    }
  };
  auto lacking = full;
  lacking.erase("norm.bias");
  fails_with(lacking, "missing 1 key ('norm.bias')");
  auto extra = full;
  extra["dist_token"] = at::randn({1});
  fails_with(extra, "unexpected 1 key ('dist_token')");
  auto other_head = full;
  other_head["head.weight"] = at::randn({7, 32});
  fails_with(other_head, "'head.weight' has shape [7, 32], needed is [5, 32]");
  auto many = full;
  for (int i = 0; i < 5000; ++i) many["x" + std::to_string(10000 + i)] = at::randn({1});
  many.erase("head.bias");
  fails_with(many, "missing 1 key ('head.bias'); unexpected 5000 keys ('x10000'");
  fails_with(many, "'x10007', ...)");
  auto broken = full;
  broken["head.bias"] = at::full({5}, std::numeric_limits<float>::quiet_NaN());
  fails_with(broken, "'head.bias' holds a value that is not finite");
}

TEST(VitTest, RefusesImagesOfAnotherSize) {
  parallel::GroupSlot slot(0, 1);
  Vit vit(Tiny(Pooling::kClassToken), slot, at::kCPU);
  EXPECT_THROW(vit.Forward(at::randn({2, 3, 16, 20}), {}), c10::Error);
  EXPECT_THROW(vit.Forward(at::randn({2, 1, 16, 16}), {}), c10::Error);
}

TEST(VitTest, RefusesAShapeThatDoesNotCut) {
  const parallel::GroupSlot slot(0, 3);
  EXPECT_THROW(Vit(Tiny(Pooling::kClassToken), slot, at::kCPU), c10::Error);
}

}  // namespace
}  // namespace tundish::model
