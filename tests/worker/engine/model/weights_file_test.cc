#include "worker/engine/model/weights_file.h"

#include <filesystem>

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "tests/worker/weights/temporary_folder.h"
#include "worker/engine/model/vit.h"
#include "worker/weights/vit_file.h"

namespace tundish::model {
namespace {

const VitShape kShape{.image_size = 8,
                      .patch_size = 4,
                      .channels = 1,
                      .hidden = 8,
                      .depth = 2,
                      .heads = 2,
                      .mlp_hidden = 16,
                      .classes = 3};

FullTensors Random() {
  FullTensors tensors;
  for (const ParameterSpec& spec : ListParameters(kShape)) {
    tensors[spec.name] = at::randn(spec.full_shape);
  }
  return tensors;
}

TEST(WeightsFileTest, BothLayoutsLoadAsTheSameModel) {
  const weights::TemporaryFolder folder;
  const FullTensors tensors = Random();
  WriteWeightsFile(folder.File("timm"), tensors, {{"format", "pt"}});
  ASSERT_TRUE(
      weights::ConvertVitFile(folder.File("timm"), folder.File("hf"), weights::Layout::kHuggingFace)
          .ok());
  for (const char* const layout : {"timm", "hf"}) {
    SCOPED_TRACE(layout);
    const parallel::GroupSlot slot(0, 1);
    Vit vit(kShape, slot, at::kCPU);
    vit.LoadFull(ReadWeightsFile(folder.File(layout)));
    for (const Parameter& parameter : vit.parameters()) {
      EXPECT_TRUE(at::equal(parameter.value.detach(), tensors.at(parameter.spec.name)))
          << parameter.spec.name;
    }
  }
}

TEST(WeightsFileTest, HalfPrecisionBecomesSingle) {
  const weights::TemporaryFolder folder;
  at::Tensor half = at::randn({8, 1, 4, 4}).to(at::kBFloat16);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(half.const_data_ptr()),
                                         half.nbytes());
  ASSERT_TRUE(weights::WriteSafetensors(
                  folder.File("x"),
                  {{{"patch_embed.proj.weight", weights::DType::kBF16, {8, 1, 4, 4}}, bytes}}, {})
                  .ok());
  const FullTensors got = ReadWeightsFile(folder.File("x"));
  EXPECT_TRUE(at::equal(got.at("patch_embed.proj.weight"), half.to(at::kFloat)));
}

TEST(WeightsFileTest, NamesTheFileThatDoesNotLoad) {
  const weights::TemporaryFolder folder;
  try {
    ReadWeightsFile(folder.File("missing.safetensors"));
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("missing.safetensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace tundish::model
