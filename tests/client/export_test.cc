// `tundish export` as a program, against a real gRPC server.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/artifact_fetch.h"
#include "tests/client/fake_coordinator.h"
#include "tests/client/program.h"
#include "worker/weights/model_config.h"
#include "worker/weights/safetensors.h"

namespace tundish::client {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const char kModelPath[] = "jobs/01JOB/1/model.safetensors";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "exportXXXXXX";
    folder_ = mkdtemp(pattern.data());
    MakeModel(folder_ + "/source.safetensors");
    const weights::ModelConfig config{.image_size = 32,
                                      .patch_size = 16,
                                      .channels = 1,
                                      .hidden = 8,
                                      .depth = 1,
                                      .heads = 2,
                                      .mlp_hidden = 32,
                                      .label_names = {"good", "bad"},
                                      .mean = {0.5},
                                      .std = {0.5}};
    config_ = weights::TimmConfigJson(config);
    state_.SetFile(kModelPath, Contents(folder_ + "/source.safetensors"));
    state_.SetFile("jobs/01JOB/1/config.json", config_);
    SetJob(HashFile(folder_ + "/source.safetensors")->sha256);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void MakeModel(const std::string& path) {
    const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
        {"cls_token", {1, 1, 8}},
        {"pos_embed", {1, 5, 8}},
        {"patch_embed.proj.weight", {8, 1, 16, 16}},
        {"patch_embed.proj.bias", {8}},
        {"blocks.0.norm1.weight", {8}},
        {"blocks.0.norm1.bias", {8}},
        {"blocks.0.attn.qkv.weight", {24, 8}},
        {"blocks.0.attn.qkv.bias", {24}},
        {"blocks.0.attn.proj.weight", {8, 8}},
        {"blocks.0.attn.proj.bias", {8}},
        {"blocks.0.norm2.weight", {8}},
        {"blocks.0.norm2.bias", {8}},
        {"blocks.0.mlp.fc1.weight", {32, 8}},
        {"blocks.0.mlp.fc1.bias", {32}},
        {"blocks.0.mlp.fc2.weight", {8, 32}},
        {"blocks.0.mlp.fc2.bias", {8}},
        {"norm.weight", {8}},
        {"norm.bias", {8}},
        {"head.weight", {2, 8}},
        {"head.bias", {2}},
    };
    std::vector<weights::TensorSpec> specs;
    size_t bytes = 0;
    for (const auto& [name, shape] : shapes) {
      specs.push_back({.name = name, .shape = shape});
      size_t count = 4;
      for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
      bytes += count;
    }
    auto writer = weights::SafetensorsWriter::Create(path, specs, {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Append(std::vector<std::byte>(bytes, std::byte{7})).ok());
    ASSERT_TRUE(writer->Commit().ok());
  }

  void SetJob(const std::string& sha256) {
    v1::Job job;
    job.set_job_id("01JOBAAAAAAAAAAAAAAAAAAAAA");
    job.set_state(v1::SUCCEEDED);
    v1::Artifact& model = *job.add_artifacts();
    model.set_kind("model");
    model.set_path(kModelPath);
    model.set_bytes(fs::file_size(folder_ + "/source.safetensors"));
    model.set_sha256(sha256);
    state_.SetJob(job);
  }

  Outcome Export(const std::string& format, const std::string& output,
                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {TUNDISH_BINARY, "export",        "01JOBA",
                                        "--format",     format,          "--output",
                                        output,         "--coordinator", server_.address()};
    command.insert(command.end(), more.begin(), more.end());
    return RunProgram(command);
  }

  /// Nothing but these files is in the folder `name`.
  void ExpectFiles(const std::string& name, std::vector<std::string> want) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ + "/" + name)) {
      names.push_back(entry.path().filename());
    }
    EXPECT_THAT(names, testing::UnorderedElementsAreArray(want));
  }

  std::string folder_;
  std::string config_;
  FakeState state_;
  FakeCoordinator server_{state_};
};

TEST_F(ExportTest, TimmIsTheFileAsItIs) {
  fs::create_directory(folder_ + "/out");
  const std::string output = folder_ + "/out/model.safetensors";
  const Outcome outcome = Export("timm", output);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Contents(output), Contents(folder_ + "/source.safetensors"));
  EXPECT_EQ(Contents(folder_ + "/out/config.json"), config_);
  EXPECT_EQ(outcome.out, HashFile(output)->sha256 + "  " + output + "\n");
  ExpectFiles("out", {"model.safetensors", "config.json"});
  EXPECT_EQ(Export("timm", output).code, 0) << "again, over the same model";
}

TEST_F(ExportTest, HuggingFaceIsConverted) {
  fs::create_directory(folder_ + "/hf");
  const std::string output = folder_ + "/hf/model.safetensors";
  const Outcome outcome = Export("hf", output);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto reader = weights::SafetensorsReader::Open(output);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->tensors().contains("vit.encoder.layer.0.attention.attention.query.weight"));
  EXPECT_TRUE(reader->tensors().contains("classifier.weight"));
  EXPECT_THAT(Contents(folder_ + "/hf/config.json"), HasSubstr("ViTForImageClassification"));
  ExpectFiles("hf", {"model.safetensors", "config.json", "preprocessor_config.json"});
  EXPECT_EQ(outcome.out, HashFile(output)->sha256 + "  " + output + "\n");
}

TEST_F(ExportTest, AnotherModelsConfigIsNotOverwrittenUnasked) {
  fs::create_directory(folder_ + "/out");
  std::ofstream(folder_ + "/out/config.json") << "{}";
  const std::string output = folder_ + "/out/model.safetensors";
  const Outcome beside = Export("timm", output);
  EXPECT_EQ(beside.code, 0) << beside.err;
  EXPECT_THAT(beside.err, HasSubstr("config.json belongs to another model"));
  EXPECT_EQ(Contents(folder_ + "/out/config.json"), "{}");
  EXPECT_EQ(Contents(folder_ + "/out/model.config.json"), config_);
  ExpectFiles("out", {"config.json", "model.config.json", "model.safetensors"});
  EXPECT_EQ(Export("timm", output, {"--force"}).code, 0);
  EXPECT_EQ(Contents(folder_ + "/out/config.json"), config_);
}

TEST_F(ExportTest, AWrongHashIsAFailureAndLeavesNothing) {
  fs::create_directory(folder_ + "/out");
  SetJob(std::string(64, '0'));
  const Outcome outcome = Export("timm", folder_ + "/out/model.safetensors");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the job recorded 0000"));
  ExpectFiles("out", {});
}

TEST_F(ExportTest, AFolderThatDoesNotExistIsNamed) {
  const Outcome outcome = Export("timm", folder_ + "/none/model.safetensors");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("/none/model.safetensors"));
}

}  // namespace
}  // namespace tundish::client
