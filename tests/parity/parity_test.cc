// Holds the model, its cuts and the key maps against what timm and Hugging Face transformers
// computed (make_fixtures.py). With TUNDISH_PARITY_OUTPUT set, also writes what check_exports.py
// loads with them.
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sum.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/parity/formula.h"
#include "tests/worker/engine/parallel/thread_group.h"
#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/model/vit.h"
#include "worker/weights/model_config.h"
#include "worker/weights/vit_file.h"

namespace tundish::model {
namespace {

struct Fixture {
  const char* name;
  Pooling pooling;
  double layer_norm_eps;
};

constexpr Fixture kFixtures[] = {
    {"timm_token", Pooling::kClassToken, 1e-6},
    {"timm_mean", Pooling::kMean, 1e-6},
    {"hugging_face", Pooling::kClassToken, 1e-12},
};

std::string FolderOf(const Fixture& fixture) {
  return std::string(TUNDISH_PARITY_FIXTURES) + "/" + fixture.name;
}

VitShape ShapeOf(const Fixture& fixture) {
  return {.image_size = 16,
          .patch_size = 4,
          .channels = 3,
          .hidden = 16,
          .depth = 2,
          .heads = 4,
          .mlp_hidden = 32,
          .classes = 5,
          .pooling = fixture.pooling,
          .class_token = fixture.pooling == Pooling::kClassToken,
          .norm_after_pooling = fixture.pooling == Pooling::kMean,
          .layer_norm_eps = fixture.layer_norm_eps};
}

weights::ModelConfig ConfigOf(const VitShape& shape) {
  return {.image_size = shape.image_size,
          .patch_size = shape.patch_size,
          .channels = shape.channels,
          .hidden = shape.hidden,
          .depth = shape.depth,
          .heads = shape.heads,
          .mlp_hidden = shape.mlp_hidden,
          .mean_pooling = shape.pooling == Pooling::kMean,
          .class_token = shape.class_token,
          .norm_after_pooling = shape.norm_after_pooling,
          .layer_norm_eps = shape.layer_norm_eps,
          .label_names = {"normal", "pore", "crack", "scratch", "chip"},
          .mean = {0.5, 0.5, 0.5},
          .std = {0.5, 0.5, 0.5}};
}

/// max|a - b| / max|b|
double Deviation(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

class ParityTest : public testing::TestWithParam<std::tuple<Fixture, int>> {};

TEST_P(ParityTest, LogitsAndGradientsEqualTheReference) {
  const auto [fixture, degree] = GetParam();
  const std::string folder = FolderOf(fixture);
  const VitShape shape = ShapeOf(fixture);
  const auto full = checkpoint::ReadModelFile(folder + "/weights.safetensors");
  const auto want = checkpoint::ReadModelFile(folder + "/gradients.safetensors");
  ASSERT_TRUE(full.ok()) << full.status();
  ASSERT_TRUE(want.ok()) << want.status();
  const at::Tensor input = parity::ReadTensor(folder + "/batch.safetensors", "input");
  const at::Tensor output_gradient =
      parity::ReadTensor(folder + "/batch.safetensors", "output_gradient");
  const at::Tensor want_logits = parity::ReadTensor(folder + "/batch.safetensors", "logits");

  checkpoint::FullTensors got;
  for (const auto& [name, tensor] : *want) got[name] = at::empty(tensor.sizes());
  std::mutex mutex;
  parallel::RunRanks(degree, [&, degree = degree](parallel::GroupSlot& slot) {
    at::set_num_threads(1);
    Vit vit(shape, slot, at::kCPU);
    vit.LoadFull(*full);
    const at::Tensor logits = vit.Forward(input, {});
    torch::autograd::backward({logits}, {output_gradient});
    const std::lock_guard lock(mutex);
    EXPECT_LE(Deviation(logits.detach(), want_logits), 1e-5) << "rank " << slot.rank();
    for (const Parameter& parameter : vit.parameters()) {
      PlaceSlice(got.at(parameter.spec.name), parameter.value.grad(), parameter.spec, slot.rank(),
                 degree);
    }
  });
  for (const auto& [name, gradient] : *want) {
    EXPECT_LE(Deviation(got.at(name), gradient), 1e-4) << name;
  }
}

std::string NameOf(const testing::TestParamInfo<ParityTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_over_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, ParityTest,
                         testing::Combine(testing::ValuesIn(kFixtures), testing::Values(1, 2, 4)),
                         NameOf);

TEST(ConfigParityTest, ReadsWhatTransformersWrites) {
  const auto json = weights::ReadSmallFile(
      std::string(TUNDISH_PARITY_FIXTURES) + "/hugging_face/config.json", size_t{1} << 20);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto config = weights::ParseHuggingFaceConfig(*json, "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, ConfigOf(ShapeOf(kFixtures[2])));
}

TEST(ExportTest, WritesFoldersForTheOtherLibraries) {
  const char* const output = std::getenv("TUNDISH_PARITY_OUTPUT");
  if (output == nullptr) GTEST_SKIP() << "TUNDISH_PARITY_OUTPUT is not set";
  for (const Fixture& fixture : kFixtures) {
    const std::string source = FolderOf(fixture) + "/weights.safetensors";
    const weights::ModelConfig config = ConfigOf(ShapeOf(fixture));
    const std::string timm = std::string(output) + "/" + fixture.name + "/timm";
    std::filesystem::create_directories(timm);
    ASSERT_TRUE(ConvertVitFile(source, timm + "/model.safetensors", weights::Layout::kTimm).ok());
    ASSERT_TRUE(
        weights::WriteFileAtomically(timm + "/config.json", weights::TimmConfigJson(config)).ok());
    if (config.mean_pooling) continue;
    const std::string hf = std::string(output) + "/" + fixture.name + "/hf";
    std::filesystem::create_directories(hf);
    ASSERT_TRUE(
        ConvertVitFile(source, hf + "/model.safetensors", weights::Layout::kHuggingFace).ok());
    ASSERT_TRUE(
        weights::WriteFileAtomically(hf + "/config.json", *weights::HuggingFaceConfigJson(config))
            .ok());
    ASSERT_TRUE(weights::WriteFileAtomically(hf + "/preprocessor_config.json",
                                             weights::HuggingFacePreprocessorJson(config))
                    .ok());
  }
}

}  // namespace
}  // namespace tundish::model
