#include "worker/agent/data_checks.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <stdlib.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tundish/v1/agent_state.pb.h"

namespace tundish::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Checks whose process is a shell script.
class DataChecksTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "checks_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directory(folder_ / "tasks");
  }
  void TearDown() override {
    checks_.reset();
    fs::remove_all(folder_);
  }

  void Make(const std::string& script, std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    checks_ = std::make_unique<DataChecks>(
        io_,
        DataChecks::Options{.command = {"/bin/sh", "-c", script},
                            .folder = folder_ / "tasks",
                            .limit = limit,
                            .parallel = 1},
        [this](v1::TaskResult result) { results_.push_back(std::move(result)); });
  }

  static v1::RunTask Task(const std::string& id) {
    v1::RunTask task;
    task.set_task_id(id);
    task.set_job_id("job");
    task.mutable_check_data()->set_name("inspect");
    return task;
  }

  /// Runs the loop until `count` results are there.
  void WaitForResults(size_t count) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (results_.size() < count && std::chrono::steady_clock::now() < limit) {
      io_.run_one_until(limit);
    }
    ASSERT_EQ(results_.size(), count);
  }

  fs::path folder_;
  boost::asio::io_context io_;
  std::unique_ptr<DataChecks> checks_;
  std::vector<v1::TaskResult> results_;
};

TEST_F(DataChecksTest, HandsOverTheSpecAndReturnsTheReport) {
  v1::CheckDataResult written;
  written.mutable_report()->set_train_images(12);
  std::ofstream file(folder_ / "answer", std::ios::binary);
  written.SerializeToOstream(&file);
  file.close();
  Make("cat > " + (folder_ / "spec").string() + "; cat " + (folder_ / "answer").string());
  checks_->Run(Task("t1"));
  checks_->Run(Task("t2"));  // Waits for its turn.
  checks_->Run(Task("t2"));  // Told twice, run once.
  WaitForResults(2);
  EXPECT_EQ(results_[0].task_id(), "t1");
  EXPECT_EQ(results_[0].job_id(), "job");
  EXPECT_EQ(results_[0].error(), "");
  EXPECT_EQ(results_[0].data_report().train_images(), 12u);
  v1::JobSpec spec;
  std::ifstream given(folder_ / "spec", std::ios::binary);
  ASSERT_TRUE(spec.ParseFromIstream(&given));
  EXPECT_EQ(spec.name(), "inspect");
  EXPECT_TRUE(fs::is_empty(folder_ / "tasks"));
}

TEST_F(DataChecksTest, TurnsEveryOtherEndIntoASentence) {
  struct Case {
    const char* name;
    const char* script;
    testing::Matcher<std::string> want;
  };
  const Case cases[] = {
      {"crash", "echo decoding 7.png >&2; kill -SEGV $$",
       AllOf(HasSubstr("the data check crashed: its process was ended by signal 11"),
             HasSubstr("it last wrote: decoding 7.png"))},
      {"kill", "kill -KILL $$",
       AllOf(HasSubstr("was killed (signal 9)"), testing::Not(HasSubstr("decoder")))},
      {"exit code", "exit 3", HasSubstr("ended with exit code 3 and without a result")},
      {"nothing", "exit 0", HasSubstr("ended with exit code 0 and without a result")},
      {"rubbish", "echo rubbish", HasSubstr("and without a result")},
  };
  size_t count = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Make(c.script);
    checks_->Run(Task("t"));
    WaitForResults(++count);
    EXPECT_THAT(results_.back().error(), c.want);
    EXPECT_FALSE(results_.back().has_data_report());
  }
}

TEST_F(DataChecksTest, EndsACheckThatTakesTooLong) {
  Make("exec sleep 1000", std::chrono::milliseconds(50));
  checks_->Run(Task("t"));
  WaitForResults(1);
  EXPECT_THAT(results_[0].error(), HasSubstr("took longer than its limit of 0.05 s"));
}

TEST_F(DataChecksTest, RefusesAnIdThatIsNoFileName) {
  Make("exit 0");
  checks_->Run(Task("../t"));
  WaitForResults(1);
  EXPECT_THAT(results_[0].error(), HasSubstr("'../t'"));
}

}  // namespace
}  // namespace tundish::agent
