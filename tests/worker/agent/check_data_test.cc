#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_fixture.h"

namespace tundish::agent {
namespace {

using ::testing::HasSubstr;

/// The agent's own check-data, over real images.
class CheckDataTest : public AgentFixture {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) {
      for (const char* place : {"train/ok", "train/bad", "val/ok", "val/bad"}) {
        const auto variant = static_cast<uint32_t>(std::string_view(place).size() * 100 + i);
        images_.Write(fmt::format("{}/{}.png", place, i),
                      data::EncodePng(data::Pattern(12, 12, 1, variant)));
      }
    }
    StartAgent();
  }

  v1::TaskResult Check(const std::string& folder) {
    v1::CoordinatorMessage message;
    v1::RunTask& task = *message.mutable_run_task();
    task.set_task_id("t1");
    task.set_job_id(kJob);
    v1::JobSpec& spec = *task.mutable_check_data();
    spec.mutable_data()->set_folder(folder);
    spec.mutable_data()->set_bad_files(v1::FAIL);
    spec.mutable_model()->set_image_size(8);
    spec.mutable_model()->set_channels(1);
    spec.mutable_training()->set_global_batch(4);
    Send(message);
    return Expect([](const v1::AgentMessage& m) { return m.has_task_result(); }, "TaskResult")
        .task_result();
  }

  data::TempFolder images_;
};

TEST_F(CheckDataTest, ReportsTheData) {
  const v1::TaskResult result = Check(images_.path());
  EXPECT_EQ(result.error(), "");
  EXPECT_EQ(result.task_id(), "t1");
  EXPECT_EQ(result.job_id(), kJob);
  EXPECT_EQ(result.data_report().train_images(), 8u);
  EXPECT_EQ(result.data_report().manifest_hash().size(), 64u);
}

TEST_F(CheckDataTest, NamesAMissingFolder) {
  EXPECT_THAT(Check("/no/such/castings").error(), HasSubstr("/no/such/castings"));
}

TEST_F(CheckDataTest, NamesAnImageThatCannotBeRead) {
  images_.Write("train/ok/broken.png", "not an image");
  EXPECT_THAT(Check(images_.path()).error(), HasSubstr("broken.png"));
}

}  // namespace
}  // namespace tundish::agent
