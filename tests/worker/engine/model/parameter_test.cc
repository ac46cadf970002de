#include "worker/engine/model/parameter.h"

#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "worker/engine/model/parameter_arena.h"

namespace tundish::model {
namespace {

VitShape Tiny(Pooling pooling = Pooling::kClassToken) {
  return {.image_size = 8,
          .patch_size = 4,
          .channels = 1,
          .hidden = 8,
          .depth = 2,
          .heads = 4,
          .mlp_hidden = 12,
          .classes = 3,
          .pooling = pooling,
          .class_token = pooling == Pooling::kClassToken,
          .norm_after_pooling = pooling == Pooling::kMean};
}

TEST(ParameterTest, CutThenPlaceIsTheWholeAgain) {
  for (const int degree : {1, 2, 4}) {
    for (const ParameterSpec& spec : ListParameters(Tiny())) {
      SCOPED_TRACE(spec.name + " over " + std::to_string(degree));
      const at::Tensor full = at::arange(spec.full_numel(), at::kFloat).view(spec.full_shape);
      at::Tensor merged = at::empty_like(full).fill_(-1);
      for (int rank = 0; rank < degree; ++rank) {
        const at::Tensor slice = CutForRank(full, spec, rank, degree);
        EXPECT_EQ(slice.sizes(), at::IntArrayRef(spec.LocalShape(degree)));
        PlaceSlice(merged, slice, spec, rank, degree);
      }
      EXPECT_TRUE(at::equal(merged, full));
    }
  }
}

TEST(ParameterTest, EachRankTakesItsHeadsOfQAndOfKAndOfV) {
  const ParameterSpec qkv{"qkv", Cut::kQkvRows, {12}};
  const at::Tensor rank1 = CutForRank(at::arange(12, at::kFloat), qkv, 1, 2);
  const float want[] = {2, 3, 6, 7, 10, 11};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(rank1[i].item<float>(), want[i]) << i;
}

TEST(ParameterTest, ColumnsAreCutAlongTheInput) {
  const ParameterSpec proj{"proj", Cut::kColumns, {2, 4}};
  const at::Tensor rank1 = CutForRank(at::arange(8, at::kFloat).view({2, 4}), proj, 1, 2);
  const float want[] = {2, 3, 6, 7};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rank1.flatten()[i].item<float>(), want[i]) << i;
}

TEST(ParameterTest, ListsTimmKeysAndTheDecayMask) {
  std::set<std::string> decayed;
  std::set<std::string> names;
  for (const ParameterSpec& spec : ListParameters(Tiny())) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";
    if (spec.decay) decayed.insert(spec.name);
  }
  const std::set<std::string> want = {"patch_embed.proj.weight",   "blocks.0.attn.qkv.weight",
                                      "blocks.0.attn.proj.weight", "blocks.0.mlp.fc1.weight",
                                      "blocks.0.mlp.fc2.weight",   "blocks.1.attn.qkv.weight",
                                      "blocks.1.attn.proj.weight", "blocks.1.mlp.fc1.weight",
                                      "blocks.1.mlp.fc2.weight",   "head.weight"};
  EXPECT_EQ(decayed, want);
  EXPECT_EQ(names.size(), 4u + 2 * 12 + 4);
  EXPECT_TRUE(names.contains("cls_token"));
  EXPECT_TRUE(names.contains("norm.weight"));
}

TEST(ParameterTest, MeanPoolingHasNoClassTokenAndNormalisesAfterwards) {
  std::set<std::string> names;
  for (const ParameterSpec& spec : ListParameters(Tiny(Pooling::kMean))) {
    names.insert(spec.name);
    if (spec.name == "pos_embed") {
      EXPECT_EQ(spec.full_shape[1], 4);
    }
  }
  EXPECT_FALSE(names.contains("cls_token"));
  EXPECT_FALSE(names.contains("norm.weight"));
  EXPECT_TRUE(names.contains("fc_norm.weight"));
}

TEST(ParameterArenaTest, AllStateIsOneTensorOfAlignedViews) {
  ParameterArena arena(ListParameters(Tiny()), 2, at::kCPU);
  EXPECT_EQ(arena.state().numel(), 3 * arena.section_numel());
  EXPECT_EQ(arena.section_numel() % 16, 0);
  const float* const base = arena.state().const_data_ptr<float>();
  for (const Parameter& parameter : arena.parameters()) {
    SCOPED_TRACE(parameter.spec.name);
    const int64_t offset = parameter.value.const_data_ptr<float>() - base;
    EXPECT_EQ(offset % 16, 0);
    EXPECT_EQ(parameter.exp_avg.const_data_ptr<float>() - base, offset + arena.section_numel());
    EXPECT_EQ(parameter.exp_avg_sq.const_data_ptr<float>() - base,
              offset + 2 * arena.section_numel());
    EXPECT_TRUE(parameter.value.is_leaf() && parameter.value.requires_grad());
    EXPECT_FALSE(parameter.exp_avg.requires_grad());
  }
  arena.Restore(at::arange(arena.state().numel(), at::kFloat));
  EXPECT_EQ(arena.parameters()[1].value.flatten()[0].item<float>(),
            static_cast<float>(arena.parameters()[1].value.const_data_ptr<float>() - base));
  EXPECT_THROW(arena.Restore(at::arange(5, at::kFloat)), c10::Error);
}

}  // namespace
}  // namespace tundish::model
