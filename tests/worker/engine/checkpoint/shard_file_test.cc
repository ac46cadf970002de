#include "worker/engine/checkpoint/shard_file.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/checkpoint/writer.h"
#include "worker/engine/model/vit_shape.h"

namespace tundish::checkpoint {
namespace {

namespace fs = std::filesystem;

model::VitShape TinyShape() {
  return {.image_size = 16,
          .patch_size = 8,
          .channels = 1,
          .hidden = 32,
          .depth = 2,
          .heads = 4,
          .mlp_hidden = 64,
          .classes = 3};
}

class ShardFileTest : public ::testing::Test {
 protected:
  const std::vector<model::ParameterSpec> specs_ = model::ListParameters(TinyShape());
  const testing::TemporaryFolder folder_;

  std::unique_ptr<model::ParameterArena> NewArena(int degree) const {
    return std::make_unique<model::ParameterArena>(specs_, degree, at::kCPU,
                                                   /*keep_average=*/true);
  }

  // Random values and moments of the whole model, cut for one rank.
  std::unique_ptr<model::ParameterArena> Slice(int rank, int degree) const {
    const c10::AutoGradMode no_grad(false);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    auto arena = NewArena(degree);
    for (model::Parameter& parameter : arena->parameters()) {
      for (at::Tensor* target :
           {&parameter.value, &parameter.exp_avg, &parameter.exp_avg_sq, &parameter.average}) {
        const at::Tensor full = at::randn(parameter.spec.full_shape, generator);
        target->copy_(model::CutForRank(full, parameter.spec, rank, degree));
      }
    }
    return arena;
  }

  void Write(const std::string& name, int degree) const {
    for (int tp = 0; tp < degree; ++tp) {
      Snapshot snapshot = TakeSnapshot(*Slice(tp, degree));
      snapshot.step = 12;
      snapshot.updates = 11;
      snapshot.tensor_rank = tp;
      snapshot.tensor_degree = degree;
      const absl::Status written = WriteShard(folder_.path() + "/" + name, snapshot);
      ASSERT_TRUE(written.ok()) << written;
    }
  }
};

TEST_F(ShardFileTest, LoadsAtAnyDegreeBitForBit) {
  for (const int stored : {1, 2, 4}) {
    const std::string name = std::to_string(stored);
    Write(name, stored);
    for (const int wanted : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(stored) + " to " + std::to_string(wanted));
      for (int tp = 0; tp < wanted; ++tp) {
        const auto arena = NewArena(wanted);
        const auto counters = ReadCheckpoint(folder_.path() + "/" + name, tp, wanted, *arena);
        ASSERT_TRUE(counters.ok()) << counters.status();
        EXPECT_EQ(counters->step, 12U);
        EXPECT_EQ(counters->updates, 11);
        EXPECT_TRUE(at::equal(arena->state(), Slice(tp, wanted)->state())) << "rank " << tp;
      }
    }
  }
}

TEST_F(ShardFileTest, AnAverageThatIsNotThereIsNamed) {
  model::ParameterArena without(specs_, 1, at::kCPU);
  Snapshot snapshot = TakeSnapshot(without);
  EXPECT_EQ(snapshot.sections, 3);
  ASSERT_TRUE(WriteShard(folder_.path() + "/without", snapshot).ok());
  EXPECT_TRUE(ReadCheckpoint(folder_.path() + "/without", 0, 1, without).ok());
  const auto read = ReadCheckpoint(folder_.path() + "/without", 0, 1, *NewArena(1));
  EXPECT_NE(std::string(read.status().message()).find("'average.cls_token'"), std::string::npos)
      << read.status();
}

TEST_F(ShardFileTest, NamesWhatIsWrong) {
  Write("whole", 2);
  const fs::path whole = folder_.path() + "/whole";
  struct Case {
    const char* name;
    std::function<void(const fs::path&)> spoil;
    const char* want;
  };
  const Case cases[] = {
      {"missing shard", [](const fs::path& at) { fs::remove(at / ShardName(1)); },
       "shard-tp1.safetensors"},
      {"cut off",
       [](const fs::path& at) {
         fs::resize_file(at / ShardName(0), fs::file_size(at / ShardName(0)) / 2);
       },
       "shard-tp0.safetensors"},
      {"not a shard",
       [](const fs::path& at) { std::ofstream(at / ShardName(0)) << "no safetensors"; },
       "shard-tp0.safetensors"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const fs::path copy = folder_.path() + "/copy";
    fs::remove_all(copy);
    fs::copy(whole, copy);
    c.spoil(copy);
    const auto arena = NewArena(2);
    const auto read = ReadCheckpoint(copy.string(), 0, 2, *arena);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(std::string(read.status().message()).find(c.want), std::string::npos)
        << read.status();
  }
}

TEST_F(ShardFileTest, RefusesAnotherModel) {
  Write("whole", 1);
  model::VitShape wider = TinyShape();
  wider.hidden = 64;
  model::ParameterArena arena(model::ListParameters(wider), 1, at::kCPU);
  const auto read = ReadCheckpoint(folder_.path() + "/whole", 0, 1, arena);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(std::string(read.status().message()).find("cls_token"), std::string::npos)
      << read.status();
}

TEST_F(ShardFileTest, WriterDeletesNothing) {
  std::vector<v1::CheckpointWritten> written;
  {
    Writer writer([&](uint32_t job_epoch, const v1::CheckpointWritten& report) {
      EXPECT_EQ(job_epoch, 2U);
      written.push_back(report);
    });
    for (const uint32_t step : {5, 10, 15, 20, 100}) {
      Writer::Request request;
      request.artifact_root = folder_.path();
      request.checkpoints_folder = "job/checkpoints";
      request.job_epoch = 2;
      request.stall_start = std::chrono::steady_clock::now();
      request.snapshot = TakeSnapshot(*Slice(0, 1));
      request.snapshot.step = step;
      writer.Write(std::move(request));
    }
    writer.Flush();
    EXPECT_EQ(written.size(), 5U);
  }
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.path() + "/job/checkpoints")) {
    left.insert(entry.path().filename().string());
  }
  // The coordinator's record may still name the oldest, if the newer ones lack another's shard.
  EXPECT_EQ(left, (std::set<std::string>{"e2-step5", "e2-step10", "e2-step15", "e2-step20",
                                         "e2-step100"}));
  EXPECT_EQ(written.back().path(), "job/checkpoints/e2-step100");
  EXPECT_EQ(written.back().shard(), "shard-tp0.safetensors");
  EXPECT_EQ(written.back().bytes(),
            fs::file_size(folder_.path() + "/job/checkpoints/e2-step100/shard-tp0.safetensors"));
}

}  // namespace
}  // namespace tundish::checkpoint
