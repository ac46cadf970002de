#include "worker/engine/checkpoint/start_weights.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/weights/temporary_folder.h"
#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/model/initialize.h"
#include "worker/weights/atomic_file.h"
#include "worker/weights/key_map.h"
#include "worker/weights/safetensors.h"

namespace tundish::checkpoint {
namespace {

using testing::HasSubstr;

model::VitShape Tiny() {
  return {.image_size = 8,
          .patch_size = 4,
          .channels = 3,
          .hidden = 8,
          .depth = 1,
          .heads = 2,
          .mlp_hidden = 16,
          .classes = 3};
}

FullTensors RandomWeights(const model::VitShape& shape) {
  FullTensors full;
  for (const model::ParameterSpec& spec : model::ListParameters(shape)) {
    full[spec.name] = at::randn(spec.full_shape);
  }
  return full;
}

class StartWeightsTest : public testing::Test {
 protected:
  std::string path() const { return folder_.File("model.safetensors"); }

  void Write(const std::map<std::string, at::Tensor>& tensors) {
    std::vector<weights::TensorBytes> out;
    for (const auto& [key, tensor] : tensors) {
      out.push_back(
          {.spec = {.name = key, .dtype = weights::DType::kF32, .shape = tensor.sizes().vec()},
           .bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
    }
    ASSERT_TRUE(weights::WriteSafetensors(path(), out, {{"format", "pt"}}).ok());
  }

  void WriteConfig(const std::string& text) {
    ASSERT_TRUE(weights::WriteFileAtomically(folder_.File("config.json"), text).ok());
  }

  absl::Status Load(const model::VitShape& shape, bool fresh_head = false) {
    vit_ = std::make_unique<model::Vit>(shape, slot_, at::kCPU);
    return LoadStartWeights(
        {.path = path(), .fresh_head = fresh_head, .seed = 5, .classes = {"good", "bad", "ugly"}},
        *vit_);
  }

  at::Tensor Loaded(const std::string& name) const {
    for (const model::Parameter& parameter : vit_->parameters()) {
      if (parameter.spec.name == name) return parameter.value.detach();
    }
    return {};
  }

  bool HeadIsFresh() const {
    for (const model::Parameter& parameter : vit_->parameters()) {
      if (!parameter.spec.name.starts_with("head.")) continue;
      if (!at::equal(parameter.value.detach(), model::InitialValue(parameter.spec, 5))) {
        return false;
      }
    }
    return true;
  }

  const weights::TemporaryFolder folder_;
  const parallel::GroupSlot slot_{0, 1};
  std::unique_ptr<model::Vit> vit_;
};

TEST_F(StartWeightsTest, ABareHuggingFaceBackboneGetsAFreshHead) {
  const FullTensors full = RandomWeights(Tiny());
  std::map<std::string, at::Tensor> bare;
  for (const auto& [key, tensor] : full) {
    if (key.starts_with("head.")) continue;
    const auto targets = weights::HuggingFaceKeysOf(key);
    ASSERT_TRUE(targets.ok());
    const std::vector<at::Tensor> parts = tensor.chunk(static_cast<int64_t>(targets->size()));
    for (size_t i = 0; i < parts.size(); ++i) {
      bare[(*targets)[i].substr(std::string_view("vit.").size())] = parts[i].contiguous();
    }
  }
  for (const bool pooler : {false, true}) {
    if (pooler) {
      bare["pooler.dense.weight"] = at::randn({8, 8});
      bare["pooler.dense.bias"] = at::randn({8});
    }
    Write(bare);
    const absl::Status loaded = Load(Tiny());
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(at::equal(Loaded("blocks.0.attn.qkv.weight"), full.at("blocks.0.attn.qkv.weight")));
    EXPECT_TRUE(HeadIsFresh());
  }
}

TEST_F(StartWeightsTest, KeepsAHeadUnlessTold) {
  const FullTensors full = RandomWeights(Tiny());
  Write(full);
  ASSERT_TRUE(Load(Tiny()).ok());
  EXPECT_TRUE(at::equal(Loaded("head.weight"), full.at("head.weight")));
  ASSERT_TRUE(Load(Tiny(), /*fresh_head=*/true).ok());
  EXPECT_TRUE(HeadIsFresh());
  EXPECT_TRUE(at::equal(Loaded("norm.weight"), full.at("norm.weight")));
  model::VitShape more = Tiny();
  more.classes = 7;
  EXPECT_TRUE(Load(more, /*fresh_head=*/true).ok());
  const absl::Status refused = Load(more);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'head.weight' has shape [3, 8]"));
}

TEST_F(StartWeightsTest, FoldsColourButDoesNotInventIt) {
  const FullTensors full = RandomWeights(Tiny());
  Write(full);
  model::VitShape grey = Tiny();
  grey.channels = 1;
  ASSERT_TRUE(Load(grey).ok());
  EXPECT_TRUE(at::equal(Loaded("patch_embed.proj.weight"),
                        full.at("patch_embed.proj.weight").sum(1, /*keepdim=*/true)));
  Write(RandomWeights(grey));
  EXPECT_THAT(std::string(Load(Tiny()).message()), HasSubstr("misshaped 1 key"));
}

TEST_F(StartWeightsTest, NamesWhatDoesNotFit) {
  const FullTensors good = RandomWeights(Tiny());
  struct Case {
    const char* name;
    std::function<void(FullTensors&)> spoil;
    const char* want;
  };
  const Case cases[] = {
      {"missing", [](FullTensors& t) { t.erase("norm.bias"); }, "missing 1 key ('norm.bias')"},
      {"another option", [](FullTensors& t) { t["blocks.0.ls1.gamma"] = at::randn({8}); },
       "unexpected 1 key ('blocks.0.ls1.gamma')"},
      {"NaN", [](FullTensors& t) { t["head.bias"] = at::full({3}, NAN); },
       "'head.bias' holds a value that is not finite"},
      {"positions of no square",
       [](FullTensors& t) {
         t["pos_embed"] = at::randn({1, 8, 8});
       },
       "'pos_embed' has shape [1, 8, 8], needed is [1, 5, 8]"},
      {"positions of another rank", [](FullTensors& t) { t["pos_embed"] = at::randn({5}); },
       "'pos_embed' has shape [5]"},
      {"no positions",
       [](FullTensors& t) {
         t["pos_embed"] = at::randn({1, 0, 8});
       },
       "'pos_embed' has shape [1, 0, 8]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    FullTensors spoiled = good;
    c.spoil(spoiled);
    Write(spoiled);
    const absl::Status refused = Load(Tiny());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.want));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path()));
  }
}

TEST_F(StartWeightsTest, TheConfigBesideMustAgree) {
  Write(RandomWeights(Tiny()));
  weights::ModelConfig config{.image_size = 8,
                              .patch_size = 4,
                              .channels = 3,
                              .hidden = 8,
                              .depth = 1,
                              .heads = 2,
                              .mlp_hidden = 16,
                              .layer_norm_eps = 1e-6,
                              .label_names = {"good", "bad", "ugly"},
                              .mean = {0.5, 0.5, 0.5},
                              .std = {0.5, 0.5, 0.5}};
  WriteConfig(weights::TimmConfigJson(config));
  EXPECT_TRUE(Load(Tiny()).ok());
  struct Case {
    std::function<void(weights::ModelConfig&)> spoil;
    const char* want;
  };
  const Case cases[] = {
      {[](auto& c) { c.heads = 4; }, "its config says 4 heads, model.heads is 2"},
      {[](auto& c) { c.layer_norm_eps = 1e-12; },
       "a LayerNorm epsilon of 1e-12, model.layer_norm_eps is 1e-06"},
      {[](auto& c) { std::swap(c.label_names[0], c.label_names[1]); },
       "class 0 of the head is 'bad', the job's is 'good'"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.want);
    weights::ModelConfig other = config;
    c.spoil(other);
    WriteConfig(weights::TimmConfigJson(other));
    const absl::Status refused = Load(Tiny());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.want));
  }
  config.label_names = {"LABEL_0", "LABEL_1", "LABEL_2"};
  WriteConfig(weights::TimmConfigJson(config));
  EXPECT_TRUE(Load(Tiny()).ok()) << "names nobody gave are no names";
  config.label_names = {"a", "b", "c"};
  WriteConfig(weights::TimmConfigJson(config));
  EXPECT_TRUE(Load(Tiny(), /*fresh_head=*/true).ok()) << "its classes do not matter";
  WriteConfig("{\"model_type\": \"llama\"}");
  EXPECT_THAT(std::string(Load(Tiny()).message()), HasSubstr("'model_type' is \"llama\""));
}

}  // namespace
}  // namespace tundish::checkpoint
