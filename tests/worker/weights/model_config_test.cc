#include "worker/weights/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::weights {
namespace {

ModelConfig Cell() {
  return {.image_size = 128,
          .patch_size = 16,
          .channels = 1,
          .hidden = 192,
          .depth = 6,
          .heads = 4,
          .mlp_hidden = 768,
          .layer_norm_eps = 1e-6,
          .label_names = {"intact", "crack \"fine\"", "Bruch über 5 %"},
          .mean = {0.5},
          .std = {0.25}};
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return text.replace(at, from.size(), to);
}

TEST(ModelConfigTest, ReadsBackWhatItWrites) {
  ModelConfig config = Cell();
  const auto timm = ParseTimmConfig(TimmConfigJson(config));
  ASSERT_TRUE(timm.ok()) << timm.status();
  EXPECT_EQ(*timm, config);
  const auto json = HuggingFaceConfigJson(config);
  ASSERT_TRUE(json.ok());
  const auto back = ParseHuggingFaceConfig(*json, HuggingFacePreprocessorJson(config));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, config);
  const auto without = ParseHuggingFaceConfig(*json, "");
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->std, std::vector<double>{0.5});
}

TEST(ModelConfigTest, EveryOptionIsWrittenForTimmAndRefusedForHuggingFace) {
  struct Case {
    void (*set)(ModelConfig&);
    const char* want;
  };
  const Case cases[] = {
      {[](ModelConfig& c) { c.mean_pooling = c.norm_after_pooling = true; }, "mean pooling"},
      {[](ModelConfig& c) { c.mean_pooling = true; }, "mean pooling"},
      {[](ModelConfig& c) { c.mean_pooling = true, c.class_token = false; }, "mean pooling"},
      {[](ModelConfig& c) { c.register_tokens = 4; }, "register tokens"},
      {[](ModelConfig& c) { c.norm_after_pooling = true; }, "fc_norm"},
      {[](ModelConfig& c) { c.prefix_positions = false; }, "without position"},
      {[](ModelConfig& c) { c.qk_norm = true; }, "queries and keys"},
      {[](ModelConfig& c) { c.layer_scale = 1e-5; }, "layer scale"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.want);
    ModelConfig config = Cell();
    c.set(config);
    const auto timm = ParseTimmConfig(TimmConfigJson(config));
    ASSERT_TRUE(timm.ok()) << timm.status();
    EXPECT_EQ(*timm, config);
    const absl::Status refused = HuggingFaceConfigJson(config).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(c.want));
  }
}

TEST(ModelConfigTest, ReadsWhatTimmAndItsHubWrite) {
  const auto hub = ParseAnyConfig(R"({
    "architecture": "vit_large_patch14_reg4_dinov2", "num_classes": 0, "num_features": 1024,
    "global_pool": "token", "model_args": {"reg_tokens": 4, "no_embed_class": true,
    "init_values": 1e-05}, "pretrained_cfg": {"input_size": [3, 518, 518], "interpolation": "bicubic",
    "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "num_classes": 0}})",
                                  "");
  ASSERT_TRUE(hub.ok()) << hub.status();
  EXPECT_EQ(*hub, (ModelConfig{.image_size = 518,
                               .patch_size = 14,
                               .channels = 3,
                               .hidden = 1024,
                               .depth = 24,
                               .heads = 16,
                               .mlp_hidden = 4096,
                               .register_tokens = 4,
                               .prefix_positions = false,
                               .layer_scale = 1e-5,
                               .mean = {0.485, 0.456, 0.406},
                               .std = {0.229, 0.224, 0.225}}));
  const auto named = ParseAnyConfig(R"({
    "architecture": "vit_tiny_patch16_224", "global_pool": "token", "pretrained_cfg": {
    "input_size": [3, 224, 224], "label_names": ["a", "b"], "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5]}})",
                                    "");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->heads, 3);
  EXPECT_EQ(named->label_names.size(), 2U);
  EXPECT_EQ(named->layer_norm_eps, 1e-6);
}

TEST(ModelConfigTest, RefusesConfigsOfOtherModels) {
  struct Case {
    const char* json;
    const char* want;
  };
  const Case cases[] = {
      {R"({"model_type": "dinov2"})", "'model_type' is \"dinov2\""},
      {R"({"model_type": 3})", "'model_type' is 3"},
      {R"({"hidden_size": 3})", "neither timm's 'architecture'"},
      {R"({"architecture": "resnet50", "pretrained_cfg": {"mean": [], "std": []}})",
       "'architecture' is 'resnet50', whose shape is not known"},
      {R"({"architecture": "vit_base_patch0_224", "pretrained_cfg": {"mean": [], "std": []}})",
       "whose shape is not known"},
      {"[[[[[[[[[[[[]]]]]]]]]]]]", "not a JSON object"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(std::string(ParseAnyConfig(c.json, "").status().message()),
                testing::HasSubstr(c.want));
  }
}

TEST(ModelConfigTest, NamesTheFieldThatIsWrong) {
  const std::string good = TimmConfigJson(Cell());
  struct Case {
    const char* name;
    std::string json;
    const char* want;
  };
  const Case cases[] = {
      {"empty", "", "not a JSON object"},
      {"a list", "[]", "not a JSON object"},
      {"deep", std::string(1 << 20, '['), "not a JSON object"},
      {"too long", std::string(5 << 20, ' '), "at most"},
      {"missing", Replaced(good, "\"depth\"", "\"deep\""), "'depth' is missing"},
      {"text for a number", Replaced(good, "\"depth\": 6", "\"depth\": \"6\""), "'depth' is \"6\""},
      {"negative", Replaced(good, "\"depth\": 6", "\"depth\": -6"), "'depth' is -6"},
      {"fraction", Replaced(good, "\"depth\": 6", "\"depth\": 6.5"), "'depth' is 6.5"},
      {"absurd", Replaced(good, "\"depth\": 6", "\"depth\": 18446744073709551615"), "'depth' is"},
      {"channels", Replaced(good, "\"in_chans\": 1", "\"in_chans\": 2000000000"), "from 1 to 64"},
      {"mean", Replaced(good, "\"mean\": [", "\"mean\": [0.1,"), "2 means and 1 deviations"},
      {"labels", Replaced(good, "\"intact\"", "3"), "a list of strings"},
      {"pooling", Replaced(good, "\"token\"", "\"max\""), "'global_pool' is 'max'"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto got = ParseTimmConfig(c.json);
    ASSERT_FALSE(got.ok());
    EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr(c.want));
  }
  const auto json = HuggingFaceConfigJson(Cell());
  const auto approximate = ParseHuggingFaceConfig(Replaced(*json, "\"gelu\"", "\"gelu_new\""), "");
  EXPECT_THAT(std::string(approximate.status().message()), testing::HasSubstr("gelu_new"));
  const auto no_bias =
      ParseHuggingFaceConfig(Replaced(*json, "\"qkv_bias\": true", "\"qkv_bias\": false"), "");
  EXPECT_THAT(std::string(no_bias.status().message()), testing::HasSubstr("'qkv_bias' is false"));
}

}  // namespace
}  // namespace tundish::weights
