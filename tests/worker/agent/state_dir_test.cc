#include "worker/agent/state_dir.h"

#include <algorithm>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StateDirTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "state_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static v1::WorkerRecord Record(const std::string& id) {
    v1::WorkerRecord record;
    record.mutable_start()->set_worker_id(id);
    record.mutable_start()->set_secret("s");
    record.set_pid(7);
    return record;
  }

  fs::path folder_;
};

TEST_F(StateDirTest, BelongsToOneAgentAndOneUser) {
  auto first = StateDir::Open(folder_ / "state");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(fs::status(folder_ / "state").permissions(), fs::perms::owner_all);
  const auto second = StateDir::Open(folder_ / "state");
  ASSERT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another agent uses the state directory '" + folder_.string()));
  first->reset();
  EXPECT_TRUE(StateDir::Open(folder_ / "state").ok());
}

TEST_F(StateDirTest, NamesAPathTooLongForASocket) {
  const auto opened = StateDir::Open(folder_ / std::string(100, 'x'));
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("too long for a Unix socket"));
}

TEST_F(StateDirTest, KeepsRecordsPrivateAndReadsThemAgain) {
  {
    auto state = StateDir::Open(folder_);
    ASSERT_TRUE(state.ok()) << state.status();
    for (const char* id : {"w1", "w2", "w3"}) {
      ASSERT_TRUE((*state)->AddWorker(id).ok());
      ASSERT_TRUE((*state)->WriteRecord(Record(id)).ok());
    }
    (*state)->DropRecord("w2");
    std::ofstream(folder_ / "workers/w3/record.pb") << "rubbish";
    EXPECT_EQ(fs::status(folder_ / "workers/w1/record.pb").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
  auto state = StateDir::Open(folder_);
  ASSERT_TRUE(state.ok()) << state.status();
  auto records = (*state)->ReadRecords();
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2u);
  std::ranges::sort(*records, {}, [](const auto& record) { return record.start().worker_id(); });
  EXPECT_EQ(records->at(0).start().worker_id(), "w1");
  EXPECT_EQ(records->at(0).start().secret(), "s");
  EXPECT_EQ(records->at(1).start().worker_id(), "w3") << "its process may run";
  EXPECT_EQ(records->at(1).start().secret(), "");

  // A record that cannot be read just now is not one that makes no sense.
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit one = before;
  one.rlim_cur = static_cast<rlim_t>(dup(0)) + 1;  // For the folder, none for the file.
  close(static_cast<int>(one.rlim_cur) - 1);
  setrlimit(RLIMIT_NOFILE, &one);
  records = (*state)->ReadRecords();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(records.status().code(), absl::StatusCode::kFailedPrecondition) << records.status();
}

TEST_F(StateDirTest, KeepsTheLatestLogsOfEndedWorkers) {
  auto state = StateDir::Open(folder_);
  ASSERT_TRUE(state.ok()) << state.status();
  for (size_t i = 0; i < StateDir::kLogsKept + 5; ++i) {
    const std::string id = "w" + std::to_string(i);
    ASSERT_TRUE((*state)->AddWorker(id).ok());
    std::ofstream((*state)->log_of(id)) << "log\n";
    (*state)->DropRecord(id);
  }
  const auto left = std::distance(fs::directory_iterator(folder_ / "workers"), {});
  EXPECT_EQ(static_cast<size_t>(left), StateDir::kLogsKept);
}

TEST(IsFileIdTest, RefusesWhatCouldLeaveTheFolder) {
  for (const char* id : {"01J8ZQ5", "a-b_c", "x"}) EXPECT_TRUE(IsFileId(id)) << id;
  for (const std::string& id : {std::string(), std::string(".."), std::string("a/b"),
                                std::string("a.b"), std::string(65, 'a'), std::string("a\0b", 3)}) {
    EXPECT_FALSE(IsFileId(id)) << id;
  }
}

TEST_F(StateDirTest, TailIsWholeLinesAndValidText) {
  struct Case {
    const char* name;
    std::string content;
    size_t bytes;
    std::string want;
  };
  const Case cases[] = {
      {"all of it", "one\ntwo\n", 100, "one\ntwo\n"},
      {"from a line's start", "first\nsecond\nthird\n", 10, "third\n"},
      {"one long line", std::string(20, 'x'), 5, "xxxxx"},
      {"UTF-8 stays", "größe é 漢 😀", 100, "größe é 漢 😀"},
      {"the rest becomes ?", "a\xff\xc0\xaf\xed\xa0\x80z\xe6\xbc", 100, "a??????z??"},
      {"empty", "", 10, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::ofstream(folder_ / "log", std::ios::trunc) << c.content;
    EXPECT_EQ(ReadTail(folder_ / "log", c.bytes), c.want);
  }
  EXPECT_EQ(ReadTail(folder_ / "missing", 10), "");
}

}  // namespace
}  // namespace tundish::agent
