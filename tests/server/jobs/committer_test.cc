#include "server/jobs/committer.h"

#include <filesystem>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "runtime/base/ulid.h"

namespace tundish::jobs {
namespace {

class CommitterTest : public testing::Test {
 protected:
  CommitterTest() : work_(loop_.get_executor()) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("committer_" + NewUlid(std::chrono::system_clock::now()));
    std::filesystem::create_directories(folder_);
  }
  ~CommitterTest() override { std::filesystem::remove_all(folder_); }

  void Open(int64_t max_pages) {
    store_ = store::Store::Open(folder_ / "tundish.db", {.max_pages = max_pages}).value();
    committer_ = std::make_unique<Committer>(loop_.get_executor(), *store_);
  }

  static store::WriteBatch Batch(uint32_t seq, size_t bytes = 10) {
    v1::JobUpdate update;
    update.set_seq(seq);
    update.mutable_log()->set_text(std::string(bytes, 'x'));
    store::WriteBatch batch;
    batch.AppendUpdate("job", update);
    return batch;
  }

  boost::asio::io_context loop_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::filesystem::path folder_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Committer> committer_;
};

TEST_F(CommitterTest, EffectsLeaveInOrderAfterTheirWrites) {
  Open(0);
  std::vector<int> left;
  for (uint32_t i = 0; i < 20; ++i) {
    // Every third one writes nothing and still keeps its place.
    committer_->Commit(i % 3 == 0 ? store::WriteBatch() : Batch(i),
                       [this, &left, i](const absl::Status& status) {
                         EXPECT_TRUE(status.ok()) << status;
                         if (i % 3 != 0) {
                           const auto stored = store_->ReadUpdates("job", i - 1, 1);
                           EXPECT_EQ(stored->at(0).seq(), i) << "left before it was durable";
                         }
                         left.push_back(static_cast<int>(i));
                       });
    EXPECT_TRUE(left.empty()) << "an effect never runs from within Commit";
  }
  while (left.size() < 20) loop_.run_one();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(left[i], i);
  EXPECT_EQ(committer_->backlog_bytes(), 0u);
}

TEST_F(CommitterTest, WhileTheDiskIsFullNothingLeaves) {
  Open(60);
  bool ran = false;
  absl::Status told;
  committer_->Commit(Batch(1, 1 << 20), [&](const absl::Status& status) {
    ran = true;
    told = status;
  });
  while (committer_->health().ok()) loop_.run_one();
  EXPECT_EQ(committer_->health().code(), absl::StatusCode::kResourceExhausted);
  bool later = false;
  committer_->Commit({}, [&](const absl::Status&) { later = true; });
  loop_.poll();
  EXPECT_FALSE(ran || later);
  EXPECT_GT(committer_->backlog_bytes(), size_t{1} << 20);
  committer_->Close();
  EXPECT_TRUE(ran && later);
  EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tundish::jobs
