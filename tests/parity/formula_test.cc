// Every size family and every option, against what timm and Hugging Face transformers computed with
// the weights of formula.py (make_formula_fixtures.py). With TUNDISH_PARITY_OUTPUT set, also writes
// what check_exports.py loads with them.
#include "tests/parity/formula.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker/engine/parallel/thread_group.h"
#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/model/adapt.h"
#include "worker/engine/model/vit.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/vit_file.h"

namespace tundish::model {
namespace {

struct Case {
  const char* name;
  VitShape shape;
  int degree = 2;            ///< Also run cut in so many.
  int64_t source_image = 0;  ///< Image size and channels of the weights, where others.
  int64_t source_channels = 0;
};

VitShape Family(int64_t hidden, int64_t heads, int64_t patch, int64_t depth, bool hugging_face) {
  return {.image_size = 3 * patch,
          .patch_size = patch,
          .hidden = hidden,
          .depth = depth,
          .heads = heads,
          .mlp_hidden = 4 * hidden,
          .classes = 5,
          .layer_norm_eps = hugging_face ? 1e-12 : 1e-6};
}

VitShape Small(int64_t image_size = 16, bool hugging_face = false) {
  return {.image_size = image_size,
          .patch_size = 4,
          .hidden = 16,
          .depth = 2,
          .heads = 4,
          .mlp_hidden = 32,
          .classes = 5,
          .layer_norm_eps = hugging_face ? 1e-12 : 1e-6};
}

VitShape With(void (*change)(VitShape&)) {
  VitShape shape = Small();
  change(shape);
  return shape;
}

const Case kCases[] = {
    {"timm_family_tiny", Family(192, 3, 8, 3, false), 3},
    {"hf_family_tiny", Family(192, 3, 8, 3, true), 3},
    {"timm_family_small", Family(384, 6, 32, 2, false), 2},
    {"hf_family_small", Family(384, 6, 32, 2, true), 6},
    {"timm_family_base", Family(768, 12, 16, 2, false), 4},
    {"hf_family_base", Family(768, 12, 16, 2, true), 3},
    {"timm_family_large", Family(1024, 16, 16, 2, false), 8},
    {"hf_family_large", Family(1024, 16, 16, 2, true), 4},
    {"timm_family_huge", Family(1280, 16, 14, 1, false), 8},
    {"hf_family_huge", Family(1280, 16, 14, 1, true), 2},
    {"timm_registers", With([](VitShape& s) { s.register_tokens = 3, s.layer_scale = 0.1; })},
    {"timm_dino", With([](VitShape& s) {
       s.register_tokens = 2, s.prefix_positions = false, s.qk_norm = true, s.layer_scale = 0.5;
     }),
     4},
    {"timm_mean_with_token",
     With([](VitShape& s) { s.pooling = Pooling::kMean, s.norm_after_pooling = true; })},
    {"timm_mean_after_norm", With([](VitShape& s) { s.pooling = Pooling::kMean; })},
    {"timm_token_before_norm", With([](VitShape& s) { s.norm_after_pooling = true; })},
    {"timm_grey_from_rgb", With([](VitShape& s) { s.channels = 1; }), 2, 0, 3},
    {"timm_resized_to_12", Small(12), 2, 16},
    {"timm_resized_to_28", Small(28), 4, 16},
    {"hf_resized_to_12", Small(12, true), 2, 16},
    {"hf_resized_to_28", Small(28, true), 4, 16},
};

bool IsHuggingFace(const Case& c) {
  return std::string_view(c.name).starts_with("hf_");
}

std::string PathOf(const Case& c) {
  return std::string(TUNDISH_PARITY_FIXTURES) + "/formula/" + c.name + ".safetensors";
}

/// The reference's weights by timm key, before they are adapted: where the reference is Hugging
/// Face's, its keys name the numbers.
checkpoint::FullTensors SourceWeights(const Case& c) {
  VitShape shape = c.shape;
  if (c.source_image > 0) shape.image_size = c.source_image;
  if (c.source_channels > 0) shape.channels = c.source_channels;
  checkpoint::FullTensors full;
  for (const ParameterSpec& spec : ListParameters(shape)) {
    if (!IsHuggingFace(c)) {
      full[spec.name] = parity::Weight(spec.name, spec.full_shape);
      continue;
    }
    const auto keys = weights::HuggingFaceKeysOf(spec.name);
    TORCH_CHECK(keys.ok(), std::string(keys.status().message()));
    std::vector<int64_t> part = spec.full_shape;
    part[0] /= static_cast<int64_t>(keys->size());
    std::vector<at::Tensor> parts;
    for (const std::string& key : *keys) parts.push_back(parity::Weight(key, part));
    full[spec.name] = at::cat(parts);
  }
  return full;
}

checkpoint::FullTensors AdaptedWeights(const Case& c) {
  checkpoint::FullTensors full = SourceWeights(c);
  AdaptWeights(c.shape, {.antialias = !IsHuggingFace(c)}, full);
  return full;
}

double Largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

/// Holds a merged gradient against what the fixture has of it, all or samples. False when it has
/// nothing.
bool CheckGradient(const weights::SafetensorsReader& file, const std::string& path,
                   const std::string& name, const at::Tensor& got) {
  constexpr double kTolerance = 1e-4;
  if (file.tensors().contains("grad." + name)) {
    const at::Tensor want = parity::ReadTensor(path, "grad." + name);
    // Softmax does not see a shift of all keys: the true gradient is 0, what is there is rounding.
    const double least = name.ends_with("k_norm.bias") ? 1e-3 : 0.0;
    EXPECT_LE(Largest(got - want), kTolerance * std::max(Largest(want), least)) << name;
    return true;
  }
  if (!file.tensors().contains("sample." + name)) return false;
  const at::Tensor want = parity::ReadTensor(path, "sample." + name);
  const double largest = parity::ReadTensor(path, "max." + name).item<double>();
  const at::Tensor flat = got.flatten();
  const int64_t count = flat.numel();
  for (int64_t i = 0; i < want.numel(); ++i) {
    EXPECT_NEAR(flat[i * count / want.numel()].item<double>(), want[i].item<double>(),
                kTolerance * largest)
        << name << " sample " << i;
  }
  EXPECT_NEAR(Largest(flat), largest, kTolerance * largest) << name;
  const double projection =
      at::dot(flat.to(at::kDouble), parity::Uniform(name, count).to(at::kDouble)).item<double>() /
      std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(projection, parity::ReadTensor(path, "dot." + name).item<double>(),
              kTolerance * largest)
      << name;
  return true;
}

class FormulaParityTest : public testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(FormulaParityTest, LogitsAndGradientsEqualTheReference) {
  const auto& [c, cut] = GetParam();
  const int degree = cut ? c.degree : 1;
  const std::string path = PathOf(c);
  const auto file = weights::SafetensorsReader::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const at::Tensor want_logits = parity::ReadTensor(path, "logits");
  const at::Tensor input =
      parity::Scaled("input", {2, c.shape.channels, c.shape.image_size, c.shape.image_size}, 4);
  const at::Tensor output_gradient = parity::Scaled("output_gradient", {2, 5}, 2);
  const checkpoint::FullTensors full = AdaptedWeights(c);

  checkpoint::FullTensors got;
  for (const auto& [name, tensor] : full) got[name] = at::empty(tensor.sizes());
  std::mutex mutex;
  parallel::RunRanks(degree, [&, &c = c](parallel::GroupSlot& slot) {
    at::set_num_threads(1);
    Vit vit(c.shape, slot, at::kCPU);
    vit.LoadFull(full);
    const at::Tensor logits = vit.Forward(input, {});
    torch::autograd::backward({logits}, {output_gradient});
    vit.SumPartialGradients();
    const std::lock_guard lock(mutex);
    EXPECT_LE(Largest(logits.detach() - want_logits), 1e-5 * Largest(want_logits));
    for (const Parameter& parameter : vit.parameters()) {
      PlaceSlice(got.at(parameter.spec.name), parameter.value.grad(), parameter.spec, slot.rank(),
                 degree);
    }
  });
  size_t checked = 0;
  for (const auto& [name, gradient] : got) checked += CheckGradient(*file, path, name, gradient);
  // Hugging Face resizes in its forward: its table's gradient is another tensor's.
  const bool no_positions = IsHuggingFace(c) && c.source_image > 0;
  EXPECT_EQ(checked, got.size() - (no_positions ? 1 : 0));
}

std::string CaseNameOf(const testing::TestParamInfo<FormulaParityTest::ParamType>& info) {
  const Case& c = std::get<0>(info.param);
  return std::string(c.name) +
         (std::get<1>(info.param) ? "_over_" + std::to_string(c.degree) : "_whole");
}

INSTANTIATE_TEST_SUITE_P(All, FormulaParityTest,
                         testing::Combine(testing::ValuesIn(kCases), testing::Bool()), CaseNameOf);

// timm's param_groups_layer_decay with a decay of 0.75 and a weight decay of 0.05.
TEST(ParameterGroupsTest, LayersAndDecayMasksAreTimms) {
  struct Group {
    const char* name;
    const char* shape_of;
  };
  for (const Group& group : {Group{"groups_dino", "timm_dino"},
                             Group{"groups_mean_with_token", "timm_mean_with_token"}}) {
    const std::string path =
        std::string(TUNDISH_PARITY_FIXTURES) + "/formula/" + group.name + ".safetensors";
    for (const Case& c : kCases) {
      if (std::string_view(c.name) != group.shape_of) continue;
      for (const ParameterSpec& spec : ListParameters(c.shape)) {
        const at::Tensor want = parity::ReadTensor(path, spec.name);
        const double rate = std::pow(0.75, static_cast<double>(c.shape.depth + 1 - spec.layer));
        EXPECT_NEAR(want[0].item<double>(), rate, 1e-6) << spec.name;
        EXPECT_EQ(want[1].item<double>() != 0, spec.decay) << spec.name;
      }
    }
  }
}

weights::ModelConfig CaseConfigOf(const VitShape& shape) {
  return {.image_size = shape.image_size,
          .patch_size = shape.patch_size,
          .channels = shape.channels,
          .hidden = shape.hidden,
          .depth = shape.depth,
          .heads = shape.heads,
          .mlp_hidden = shape.mlp_hidden,
          .mean_pooling = shape.pooling == Pooling::kMean,
          .class_token = shape.class_token,
          .register_tokens = shape.register_tokens,
          .norm_after_pooling = shape.norm_after_pooling,
          .prefix_positions = shape.prefix_positions,
          .qk_norm = shape.qk_norm,
          .layer_scale = shape.layer_scale,
          .layer_norm_eps = shape.layer_norm_eps,
          .label_names = {"normal", "pore", "crack", "scratch", "chip"},
          .mean = std::vector<double>(static_cast<size_t>(shape.channels), 0.5),
          .std = std::vector<double>(static_cast<size_t>(shape.channels), 0.5)};
}

TEST(FormulaExportTest, WritesFoldersForTheOtherLibraries) {
  const char* const output = std::getenv("TUNDISH_PARITY_OUTPUT");
  if (output == nullptr) GTEST_SKIP() << "TUNDISH_PARITY_OUTPUT is not set";
  for (const Case& c : kCases) {
    const parallel::GroupSlot slot(0, 1);
    Vit vit(c.shape, slot, at::kCPU);
    const checkpoint::FullTensors full = AdaptedWeights(c);
    const std::string timm = std::string(output) + "/formula/" + c.name + "/timm";
    const weights::ModelConfig config = CaseConfigOf(c.shape);
    ASSERT_TRUE(checkpoint::ExportModel(timm, vit.parameters(), full, config).ok());
    const auto json = weights::HuggingFaceConfigJson(config);
    const std::string hf = std::string(output) + "/formula/" + c.name + "/hf";
    std::filesystem::create_directories(hf);
    const absl::Status converted = weights::ConvertVitFile(
        timm + "/model.safetensors", hf + "/model.safetensors", weights::Layout::kHuggingFace);
    if (!json.ok()) {
      std::filesystem::remove_all(hf);
      continue;
    }
    ASSERT_TRUE(converted.ok()) << converted;
    ASSERT_TRUE(weights::WriteFileAtomically(hf + "/config.json", *json).ok());
  }
}

}  // namespace
}  // namespace tundish::model
