// Each fault is made for real: a layer outside autocast, a tensor of another device, an overflow.
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/engine/model/vit.h"
#include "worker/engine/observe/non_finite_watch.h"
#include "worker/engine/observe/precision_watch.h"
#include "worker/engine/observe/preflight.h"

namespace tundish::observe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// bf16 autocast on the CPU, as the trainer's.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

model::VitShape Tiny() {
  return {.image_size = 8,
          .patch_size = 4,
          .channels = 1,
          .hidden = 16,
          .depth = 2,
          .heads = 2,
          .mlp_hidden = 32,
          .classes = 3};
}

struct TinyVit {
  parallel::GroupSlot slot{0, 1};
  model::Vit model{Tiny(), slot, at::Device(at::kCPU)};
  at::Tensor images = at::ones({2, 1, 8, 8});

  TinyVit() { model.InitializeFromSeed(3); }
};

TEST(PrecisionWatchTest, AWholeModelPassesInEitherPrecision) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16);
    TinyVit vit;
    PrecisionWatch watch(at::Device(at::kCPU), bf16 ? at::kBFloat16 : at::kFloat);
    {
      const WatchScope scope({&watch});
      at::Tensor logits;
      if (bf16) {
        const Autocast autocast;
        logits = vit.model.Forward(vit.images, std::nullopt);
      } else {
        logits = vit.model.Forward(vit.images, std::nullopt);
      }
      logits.to(at::kFloat).sum().backward();
    }
    ASSERT_FALSE(watch.fault().has_value()) << watch.fault()->message;
    // Patches, four layers and attention per block, head; each again in backward.
    EXPECT_GT(watch.matmuls(), 22);
    EXPECT_GT(watch.operators(), watch.matmuls());
    const int64_t seen = watch.operators();
    vit.model.Forward(vit.images, std::nullopt);
    EXPECT_EQ(watch.operators(), seen) << "the watch went on after its scope";
    EXPECT_EQ(WatchScope::path(), nullptr);
  }
}

TEST(PrecisionWatchTest, NamesALayerOutsideAutocast) {
  const at::Tensor x = at::ones({2, 4}, at::kFloat);
  at::Tensor weight = at::ones({4, 4}, at::kFloat).requires_grad_(true);
  PrecisionWatch watch(at::Device(at::kCPU), at::kBFloat16);
  {
    const WatchScope scope({&watch});
    const ModuleScope block("blocks", 1);
    at::Tensor y;
    {
      const Autocast autocast;
      const ModuleScope attn("attn");
      y = at::linear(x, weight);
    }
    ASSERT_FALSE(watch.fault().has_value()) << watch.fault()->message;
    const ModuleScope mlp("mlp");
    y = at::linear(y.to(at::kFloat), weight);
  }
  ASSERT_TRUE(watch.fault().has_value());
  EXPECT_EQ(watch.fault()->reason, "wrong_precision");
  EXPECT_THAT(watch.fault()->message, AllOf(HasSubstr("aten::linear in blocks.1.mlp (forward)"),
                                            HasSubstr("fp32"), HasSubstr("bf16")));
}

TEST(PrecisionWatchTest, NamesTheModuleWhoseBackwardFellBack) {
  const at::Tensor x = at::ones({2, 4}, at::kBFloat16);
  at::Tensor weight = at::ones({4, 4}, at::kBFloat16).requires_grad_(true);
  PrecisionWatch watch(at::Device(at::kCPU), at::kFloat);
  at::Tensor y;
  {
    const WatchScope all({});  // Empty: watches nothing, and hides no scope.
    y = x;
  }
  {
    const WatchScope scope({&watch});
    const ModuleScope block("blocks", 3);
    {
      const ModuleScope attn("attn");
      at::Tensor other = weight.to(at::kFloat);
      y = at::linear(x.to(at::kFloat), other);
    }
    ASSERT_FALSE(watch.fault().has_value()) << watch.fault()->message;
    // A product of bf16 in backward only: the gradient of a product with a bf16 factor.
    const ModuleScope mlp("mlp");
    const at::Tensor half = at::linear(y.to(at::kBFloat16), weight);
    half.to(at::kFloat).sum().backward();
  }
  ASSERT_TRUE(watch.fault().has_value());
  EXPECT_THAT(watch.fault()->message, HasSubstr("blocks.3.mlp"));
}

TEST(PrecisionWatchTest, SeesAttentionInTheWrongPrecision) {
  PrecisionWatch watch(at::Device(at::kCPU), at::kBFloat16);
  const at::Tensor q_bhsw = at::ones({1, 2, 4, 8}, at::kFloat).requires_grad_(true);
  {
    const WatchScope scope({&watch});
    const ModuleScope attn("attn");
    at::scaled_dot_product_attention(q_bhsw, q_bhsw, q_bhsw);
  }
  ASSERT_TRUE(watch.fault().has_value());
  EXPECT_THAT(watch.fault()->message, AllOf(HasSubstr("attn"), HasSubstr("fp32")));
}

TEST(PrecisionWatchTest, NamesATensorOfAnotherDevice) {
  PrecisionWatch watch(at::Device(at::kCPU), at::kFloat);
  const at::Tensor elsewhere = at::ones({2, 4}, at::TensorOptions(at::kFloat).device(at::kMeta));
  {
    const WatchScope scope({&watch});
    const ModuleScope block("blocks", 0);
    const at::Tensor shape_only = elsewhere.view({4, 2});  // Describes, does not compute.
    ASSERT_FALSE(watch.fault().has_value()) << watch.fault()->message;
    const ModuleScope mlp("mlp");
    at::cat({shape_only, shape_only}, 0);
  }
  ASSERT_TRUE(watch.fault().has_value());
  EXPECT_EQ(watch.fault()->reason, "wrong_device");
  EXPECT_THAT(watch.fault()->message,
              AllOf(HasSubstr("aten::cat in blocks.0.mlp"), HasSubstr("meta"), HasSubstr("cpu")));
}

// The module that each operator of backward belongs to, by the name of the operator.
class PathRecorder final : public OperatorWatch {
 public:
  void Before(const OperatorCall& call) override {
    if (call.backward) of_backward[call.function.name()] = call.module;
  }
  std::map<std::string, std::string> of_backward;
};

TEST(ModulePathTest, BackwardFindsItsModule) {
  const at::Tensor x = at::ones({2, 4}).requires_grad_(true);
  PathRecorder recorder;
  {
    const WatchScope scope({&recorder});
    at::Tensor y;
    {
      const ModuleScope first("first");
      y = x.sigmoid();
    }
    {
      const ModuleScope second("second", 2);
      y = y.tanh();
    }
    y.sum().backward();
  }
  EXPECT_EQ(recorder.of_backward["aten::sigmoid_backward"], "first");
  EXPECT_EQ(recorder.of_backward["aten::tanh_backward"], "second.2");
}

TEST(NonFiniteWatchTest, NamesTheFirstOperatorThatOverflows) {
  NonFiniteWatch watch;
  const at::Tensor x = at::ones({2, 2}).requires_grad_(true);
  {
    const WatchScope scope({&watch});
    const ModuleScope block("blocks", 4);
    const at::Tensor big = x * 1e38;
    ASSERT_FALSE(watch.found().has_value());
    const ModuleScope mlp("mlp");
    (big * 1e38 - big * 1e38).sum().backward();
  }
  ASSERT_TRUE(watch.found().has_value());
  EXPECT_EQ(watch.found()->what, "the result of aten::mul in blocks.4.mlp (forward)");
}

TEST(NonFiniteWatchTest, BlamesNobodyForMemoryNotYetWritten) {
  NonFiniteWatch watch;
  {
    const WatchScope scope({&watch});
    at::Tensor fresh = at::empty({4});
    std::fill_n(fresh.mutable_data_ptr<float>(), 4, std::numeric_limits<float>::quiet_NaN());
    fresh.view({2, 2}).copy_(at::ones({2, 2}));
    fresh.mul_(2);
  }
  EXPECT_FALSE(watch.found().has_value()) << watch.found()->what;
}

TEST(NonFiniteWatchTest, KnowsWhatIsFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(HasNonFinite(at::zeros({3})));
  EXPECT_FALSE(HasNonFinite(at::zeros({0})));
  EXPECT_FALSE(HasNonFinite(at::zeros({3}, at::kLong)));
  EXPECT_FALSE(HasNonFinite(at::Tensor()));
  EXPECT_FALSE(HasNonFinite(at::ones({3}) * -kInfinity));  // A mask.
  EXPECT_TRUE(HasNonFinite(at::ones({3}) * kInfinity));
  EXPECT_TRUE(HasNonFinite(at::zeros({3}) / 0));
  EXPECT_TRUE(HasNonFinite((at::ones({3}) * kInfinity).to(at::kBFloat16)));
}

TEST(PreflightTest, MeasuresBothPrecisions) {
  const MatmulSpeed speed = MeasureMatmul(at::Device(at::kCPU), [] {});
  EXPECT_GT(speed.fp32_seconds, 0);
  EXPECT_GT(speed.bf16_seconds, 0);
}

}  // namespace
}  // namespace tundish::observe
