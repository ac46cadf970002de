#include "worker/engine/parallel/group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker/engine/parallel/thread_group.h"

namespace tundish::parallel {
namespace {

at::Tensor Leaf(const at::Tensor& value) {
  return value.clone().requires_grad_(true);
}

TEST(GroupSlotTest, RefusesWrongCoordinatesAndUseWhileUnbound) {
  EXPECT_THROW(GroupSlot(2, 2), c10::Error);
  EXPECT_THROW(GroupSlot(-1, 2), c10::Error);
  ThreadGroup group(2);
  GroupSlot slot(1, 2);
  EXPECT_THROW(slot.group(), c10::Error);
  EXPECT_THROW(slot.Bind(group.ForRank(0)), c10::Error);
  EXPECT_THROW(slot.Bind(nullptr), c10::Error);
  slot.Bind(group.ForRank(1));
  EXPECT_EQ(slot.group()->rank(), 1);
  slot.Unbind();
  EXPECT_THROW(slot.group(), c10::Error);
}

TEST(GroupSlotTest, SizeOneIsAlwaysBound) {
  GroupSlot slot(0, 1);
  slot.Unbind();
  EXPECT_EQ(slot.group()->size(), 1);
  const at::Tensor x = Leaf(at::ones({3}));
  EXPECT_TRUE(CopyToGroup(x, slot).is_same(x));
  EXPECT_TRUE(ReduceFromGroup(x, slot).is_same(x));
}

TEST(FunctionsTest, CopyIsIdentityForwardAndSumBackward) {
  RunRanks(4, [](GroupSlot& slot) {
    const at::Tensor x = Leaf(at::arange(6, at::kFloat));
    const at::Tensor y = CopyToGroup(x, slot);
    EXPECT_TRUE(at::equal(y, x));
    const float weight = static_cast<float>(slot.rank() + 1);
    torch::autograd::backward({(y * weight).sum()}, {});
    EXPECT_TRUE(at::equal(x.grad(), at::full({6}, 10.0F))) << x.grad();
  });
}

TEST(FunctionsTest, CopyLeavesGradientsThatOthersSeeAlone) {
  RunRanks(2, [](GroupSlot& slot) {
    const at::Tensor x = Leaf(at::ones({4}));
    const at::Tensor gradient = at::ones({4});
    torch::autograd::backward({CopyToGroup(x, slot)}, {gradient});
    EXPECT_TRUE(at::equal(x.grad(), at::full({4}, 2.0F)));
    EXPECT_TRUE(at::equal(gradient, at::ones({4}))) << "the caller's gradient was overwritten";
  });
}

TEST(FunctionsTest, ReduceIsSumForwardAndIdentityBackward) {
  RunRanks(4, [](GroupSlot& slot) {
    const at::Tensor x = Leaf(at::full({5}, static_cast<float>(slot.rank())));
    const at::Tensor y = ReduceFromGroup(x * 1.0F, slot);
    EXPECT_TRUE(at::equal(y, at::full({5}, 6.0F))) << y;
    torch::autograd::backward({(y * 3.0F).sum()}, {});
    EXPECT_TRUE(at::equal(x.grad(), at::full({5}, 3.0F))) << x.grad();
  });
}

TEST(FunctionsTest, BackwardStaysInTheGroupOfItsForward) {
  ThreadGroup later(2);
  RunRanks(2, [&later](GroupSlot& slot) {
    const at::Tensor x = Leaf(at::ones({2}));
    const at::Tensor y = CopyToGroup(x, slot);
    slot.Bind(later.ForRank(slot.rank()));
    torch::autograd::backward({y.sum()}, {});
    EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 2.0F)));
  });
  EXPECT_EQ(later.reductions(), 0);
}

}  // namespace
}  // namespace tundish::parallel
