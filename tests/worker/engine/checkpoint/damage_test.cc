#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/checkpoint/shard_file.h"
#include "worker/engine/model/vit_shape.h"

namespace tundish::checkpoint {
namespace {

TEST(ShardDamageTest, EveryChangedByteOfAWeightIsFound) {
  const model::VitShape shape = {.image_size = 16,
                                 .patch_size = 8,
                                 .channels = 1,
                                 .hidden = 16,
                                 .depth = 1,
                                 .heads = 2,
                                 .mlp_hidden = 32,
                                 .classes = 2};
  model::ParameterArena arena(model::ListParameters(shape), 1, at::kCPU);
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/" + ShardName(0);
  ASSERT_TRUE(WriteShard(folder.path(), TakeSnapshot(arena)).ok());
  ASSERT_TRUE(ReadCheckpoint(folder.path(), 0, 1, arena).ok());

  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
  for (const std::streamoff from_end : {std::streamoff{1}, std::streamoff{12}, size / 4}) {
    SCOPED_TRACE(from_end);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(size - from_end);
    const auto before = static_cast<char>(file.get());
    const auto put = [&](char byte) {
      file.seekp(size - from_end);
      file.put(byte).flush();
    };
    put(static_cast<char>(before ^ 1));
    const auto damaged = ReadCheckpoint(folder.path(), 0, 1, arena);
    EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
    EXPECT_NE(damaged.status().message().find("SHA-256 differs"), std::string::npos);
    put(before);
    EXPECT_TRUE(ReadCheckpoint(folder.path(), 0, 1, arena).ok());
  }
}

}  // namespace
}  // namespace tundish::checkpoint
