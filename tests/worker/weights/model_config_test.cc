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
  for (const bool mean : {false, true}) {
    config.mean_pooling = mean;
    const auto timm = ParseTimmConfig(TimmConfigJson(config));
    ASSERT_TRUE(timm.ok()) << timm.status();
    EXPECT_EQ(*timm, config);
  }
  config.mean_pooling = false;
  const auto json = HuggingFaceConfigJson(config);
  ASSERT_TRUE(json.ok());
  const auto back = ParseHuggingFaceConfig(*json, HuggingFacePreprocessorJson(config));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, config);
  const auto without = ParseHuggingFaceConfig(*json, "");
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->std, std::vector<double>{0.5});
}

TEST(ModelConfigTest, HuggingFaceHasNoMeanPooling) {
  ModelConfig config = Cell();
  config.mean_pooling = true;
  EXPECT_EQ(HuggingFaceConfigJson(config).status().code(), absl::StatusCode::kInvalidArgument);
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
