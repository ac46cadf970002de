#include "worker/weights/vit_file.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/weights/temporary_folder.h"

namespace tundish::weights {
namespace {

TEST(KeyMapTest, MapsBothWays) {
  struct Case {
    const char* timm;
    std::vector<std::string> hugging_face;
  };
  const Case cases[] = {
      {"cls_token", {"vit.embeddings.cls_token"}},
      {"pos_embed", {"vit.embeddings.position_embeddings"}},
      {"patch_embed.proj.weight", {"vit.embeddings.patch_embeddings.projection.weight"}},
      {"patch_embed.proj.bias", {"vit.embeddings.patch_embeddings.projection.bias"}},
      {"blocks.0.norm1.weight", {"vit.encoder.layer.0.layernorm_before.weight"}},
      {"blocks.11.norm2.bias", {"vit.encoder.layer.11.layernorm_after.bias"}},
      {"blocks.3.attn.qkv.weight",
       {"vit.encoder.layer.3.attention.attention.query.weight",
        "vit.encoder.layer.3.attention.attention.key.weight",
        "vit.encoder.layer.3.attention.attention.value.weight"}},
      {"blocks.3.attn.qkv.bias",
       {"vit.encoder.layer.3.attention.attention.query.bias",
        "vit.encoder.layer.3.attention.attention.key.bias",
        "vit.encoder.layer.3.attention.attention.value.bias"}},
      {"blocks.3.attn.proj.weight", {"vit.encoder.layer.3.attention.output.dense.weight"}},
      {"blocks.3.mlp.fc1.bias", {"vit.encoder.layer.3.intermediate.dense.bias"}},
      {"blocks.3.mlp.fc2.weight", {"vit.encoder.layer.3.output.dense.weight"}},
      {"norm.weight", {"vit.layernorm.weight"}},
      {"head.weight", {"classifier.weight"}},
      {"head.bias", {"classifier.bias"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.timm);
    const auto forward = HuggingFaceKeysOf(c.timm);
    ASSERT_TRUE(forward.ok()) << forward.status();
    EXPECT_EQ(*forward, c.hugging_face);
    const int parts = static_cast<int>(c.hugging_face.size());
    for (int part = 0; part < parts; ++part) {
      std::string key = c.hugging_face[static_cast<size_t>(part)];
      for (int bare = 0; bare < 2; ++bare) {
        const auto back = TimmKeyOf(key);
        ASSERT_TRUE(back.ok() && back->has_value()) << key;
        EXPECT_EQ(**back, (KeyPart{c.timm, part, parts})) << key;
        if (key.starts_with("vit.")) key = key.substr(4);
      }
    }
  }
}

TEST(KeyMapTest, NamesKeysThatNoViTHas) {
  for (const char* const key :
       {"blocks.0.attn.q_norm.weight", "blocks.x.norm1.weight", "blocks.0.norm1", "blocks..weight",
        "blocks.0.norm1.scale", "dist_token", "", "blocks.", "vit.encoder.layer.0"}) {
    EXPECT_FALSE(HuggingFaceKeysOf(key).ok()) << key;
    EXPECT_FALSE(TimmKeyOf(key).ok()) << key;
  }
  const std::pair<const char*, const char*> beyond[] = {
      {"fc_norm.weight", "mean pooling"},
      {"reg_token", "register tokens"},
      {"blocks.3.ls2.gamma", "layer scale"},
      {"blocks.0.attn.k_norm.bias", "queries and keys"},
  };
  for (const auto& [key, option] : beyond) {
    EXPECT_THAT(std::string(HuggingFaceKeysOf(key).status().message()), testing::HasSubstr(option));
  }
  const auto pooler = TimmKeyOf("pooler.dense.weight");
  ASSERT_TRUE(pooler.ok());
  EXPECT_FALSE(pooler->has_value());
}

/// A one-block model whose every number is its own position.
std::vector<TensorSpec> TimmTensors() {
  const int64_t d = 4;
  std::vector<TensorSpec> tensors = {
      {"cls_token", DType::kF32, {1, 1, d}},
      {"pos_embed", DType::kF32, {1, 5, d}},
      {"patch_embed.proj.weight", DType::kF32, {d, 1, 2, 2}},
      {"patch_embed.proj.bias", DType::kF32, {d}},
      {"norm.weight", DType::kF32, {d}},
      {"norm.bias", DType::kF32, {d}},
      {"head.weight", DType::kF32, {2, d}},
      {"head.bias", DType::kF32, {2}},
      {"blocks.0.attn.qkv.weight", DType::kF32, {3 * d, d}},
      {"blocks.0.attn.qkv.bias", DType::kF32, {3 * d}},
  };
  const std::pair<const char*, std::vector<int64_t>> weights[] = {{"norm1", {d}},
                                                                  {"attn.proj", {d, d}},
                                                                  {"norm2", {d}},
                                                                  {"mlp.fc1", {8, d}},
                                                                  {"mlp.fc2", {d, 8}}};
  for (const auto& [name, shape] : weights) {
    const std::string prefix = std::string("blocks.0.") + name;
    tensors.push_back({prefix + ".weight", DType::kF32, shape});
    tensors.push_back({prefix + ".bias", DType::kF32, {shape[0]}});
  }
  return tensors;
}

/// Writes the specs with numbers that count on, and returns them by name.
std::map<std::string, std::vector<float>> WriteCounting(const std::string& path,
                                                        const std::vector<TensorSpec>& specs) {
  std::map<std::string, std::vector<float>> values;
  std::vector<TensorBytes> tensors;
  float next = 0;
  for (const TensorSpec& spec : specs) {
    size_t count = 1;
    for (const int64_t extent : spec.shape) count *= static_cast<size_t>(extent);
    std::vector<float>& numbers = values[spec.name];
    numbers.resize(count);
    std::iota(numbers.begin(), numbers.end(), next);
    next += static_cast<float>(count);
    tensors.push_back({spec, std::as_bytes(std::span(numbers))});
  }
  EXPECT_TRUE(WriteSafetensors(path, tensors, {{"format", "pt"}}).ok());
  return values;
}

std::vector<float> ReadAll(const VitFile& file, const std::string& key, size_t count) {
  std::vector<float> numbers(count);
  const absl::Status status = file.Read(key, std::as_writable_bytes(std::span(numbers)));
  EXPECT_TRUE(status.ok()) << status;
  return numbers;
}

TEST(VitFileTest, ConvertsToHuggingFaceAndBack) {
  const TemporaryFolder folder;
  const std::string timm = folder.File("timm");
  const std::string hugging_face = folder.File("hf");
  const std::string back = folder.File("back");
  const auto values = WriteCounting(timm, TimmTensors());
  ASSERT_TRUE(ConvertVitFile(timm, hugging_face, Layout::kHuggingFace).ok());
  ASSERT_TRUE(ConvertVitFile(hugging_face, back, Layout::kTimm).ok());

  const auto raw = SafetensorsReader::Open(hugging_face);
  ASSERT_TRUE(raw.ok()) << raw.status();
  std::vector<float> key_rows(16);
  ASSERT_TRUE(raw->Read("vit.encoder.layer.0.attention.attention.key.weight", 0,
                        std::as_writable_bytes(std::span(key_rows)))
                  .ok());
  const std::vector<float>& qkv = values.at("blocks.0.attn.qkv.weight");
  EXPECT_TRUE(std::equal(key_rows.begin(), key_rows.end(), qkv.begin() + 16));
  EXPECT_EQ(raw->metadata().at("format"), "pt");

  for (const std::string& path : {timm, hugging_face, back}) {
    const auto file = VitFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->layout(), path == hugging_face ? Layout::kHuggingFace : Layout::kTimm);
    ASSERT_EQ(file->tensors().size(), values.size());
    for (const TensorSpec& spec : TimmTensors()) {
      EXPECT_EQ(file->tensors().at(spec.name).shape, spec.shape) << spec.name;
      const std::vector<float>& want = values.at(spec.name);
      EXPECT_EQ(ReadAll(*file, spec.name, want.size()), want) << spec.name;
    }
  }
}

TEST(VitFileTest, ReadsABareBackboneAndIgnoresItsPooler) {
  const TemporaryFolder folder;
  const std::string path = folder.File("bare");
  const auto values = WriteCounting(
      path, {{"embeddings.patch_embeddings.projection.weight", DType::kF32, {4, 1, 2, 2}},
             {"pooler.dense.weight", DType::kF32, {4, 4}}});
  const auto file = VitFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 1u);
  EXPECT_TRUE(file->tensors().contains("patch_embed.proj.weight"));
}

TEST(VitFileTest, NamesWhatDoesNotFit) {
  const std::string patch = "vit.embeddings.patch_embeddings.projection.weight";
  const std::string query = "vit.encoder.layer.0.attention.attention.query.bias";
  const std::string key = "vit.encoder.layer.0.attention.attention.key.bias";
  const std::string value = "vit.encoder.layer.0.attention.attention.value.bias";
  struct Case {
    const char* name;
    std::vector<TensorSpec> tensors;
    const char* want;
  };
  const Case cases[] = {
      {"no ViT", {{"conv1.weight", DType::kF32, {4}}}, "holds no Vision Transformer"},
      {"a part is missing",
       {{patch, DType::kF32, {1}}, {query, DType::kF32, {4}}, {value, DType::kF32, {4}}},
       "'blocks.0.attn.qkv.bias' has 2 of its 3 parts"},
      {"parts differ",
       {{patch, DType::kF32, {1}},
        {query, DType::kF32, {4}},
        {key, DType::kF32, {5}},
        {value, DType::kF32, {4}}},
       "one type and shape"},
      {"with and without prefix",
       {{patch, DType::kF32, {1}},
        {"embeddings.cls_token", DType::kF32, {1}},
        {"vit.embeddings.cls_token", DType::kF32, {1}}},
       "are the same tensor"},
      {"unknown key", {{patch, DType::kF32, {1}}, {"vit.extra", DType::kF32, {1}}}, "'vit.extra'"},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string path = folder.File("x");
    WriteCounting(path, c.tensors);
    const auto got = VitFile::Open(path);
    ASSERT_FALSE(got.ok());
    EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr(c.want));
  }
}

TEST(VitFileTest, RefusesToExportMeanPoolingToHuggingFace) {
  const TemporaryFolder folder;
  const std::string path = folder.File("mean");
  WriteCounting(
      path, {{"patch_embed.proj.weight", DType::kF32, {1}}, {"fc_norm.weight", DType::kF32, {1}}});
  const absl::Status status = ConvertVitFile(path, folder.File("out"), Layout::kHuggingFace);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("mean pooling"));
  EXPECT_EQ(folder.Entries(), 1u) << "something half-done stayed behind";
}

}  // namespace
}  // namespace tundish::weights
