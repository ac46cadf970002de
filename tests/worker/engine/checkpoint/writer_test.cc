#include "worker/engine/checkpoint/writer.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/model/vit_shape.h"

namespace tundish::checkpoint {
namespace {

TEST(WriterTest, AnInterruptEndsWaitsAndDropsWhatWasNotBegun) {
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
  const auto request = [&](uint32_t step) {
    Writer::Request made;
    made.artifact_root = folder.path();
    made.checkpoints_folder = "c";
    made.job_epoch = 1;
    made.snapshot = TakeSnapshot(arena);
    made.snapshot.step = step;
    return made;
  };

  std::vector<uint32_t> written;
  std::promise<void> first_is_there;
  std::promise<void> go_on;
  std::shared_future<void> held = go_on.get_future().share();
  Writer writer([&](uint32_t, const v1::CheckpointWritten& checkpoint) {
    written.push_back(checkpoint.step());
    if (written.size() == 1) {
      first_is_there.set_value();
      held.wait();
    }
  });
  writer.Write(request(1));
  first_is_there.get_future().wait();
  // Busy with step 1: whoever wants more waits until the interrupt.
  std::thread waiting([&] {
    writer.Flush();
    writer.Write(request(2));
  });
  writer.Interrupt();
  waiting.join();
  go_on.set_value();
  writer.Resume();
  writer.Write(request(3));
  writer.Flush();
  EXPECT_EQ(written, (std::vector<uint32_t>{1, 3}));
}

}  // namespace
}  // namespace tundish::checkpoint
