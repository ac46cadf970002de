// What the store does with files that are not what it wrote, and with its own death.
#include <filesystem>
#include <fstream>
#include <functional>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/migrations.h"
#include "server/store/schema.h"
#include "server/store/sqlite.h"
#include "server/store/store.h"
#include "tests/server/store/scratch.h"

namespace tundish::store {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  if (!fs::is_regular_file(path)) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// A closed database of some dozens of pages.
void Fill(const fs::path& path) {
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  for (std::uint32_t seq = 1; seq <= 200; ++seq) {
    (*store)->Commit(Step("J", seq, 1000), [](absl::Status) {});
  }
  (*store)->Close();
}

void RunSql(const fs::path& path, const std::string& sql) {
  auto database = Database::Open(path, true);
  ASSERT_TRUE(database.ok()) << database.status();
  ASSERT_EQ(database->Execute(sql), absl::OkStatus());
}

TEST(DamageTest, SaysWhatIsWrongAndChangesNothing) {
  struct Case {
    const char* name;
    std::function<void(const fs::path&)> damage;
    absl::StatusCode code;
    std::string message;
  };
  const Case cases[] = {
      {"empty", [](const fs::path& path) { fs::resize_file(path, 0); }, absl::StatusCode::kDataLoss,
       "the file is empty"},
      {"cut inside the header", [](const fs::path& path) { fs::resize_file(path, 50); },
       absl::StatusCode::kDataLoss, "truncated to 50 bytes"},
      {"cut after a page", [](const fs::path& path) { fs::resize_file(path, 4096); },
       absl::StatusCode::kDataLoss, "restore it from a backup"},
      {"cut in the middle",
       [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); },
       absl::StatusCode::kDataLoss, "restore it from a backup"},
      {"last page cut",
       [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) - 4096); },
       absl::StatusCode::kDataLoss, "restore it from a backup"},
      {"a page of rubbish",
       [](const fs::path& path) {
         std::string content = ReadFile(path);
         content.replace(content.size() / 2 / 4096 * 4096, 4096, std::string(4096, '\xa5'));
         WriteFile(path, content);
       },
       absl::StatusCode::kDataLoss, "damaged"},
      {"not a database", [](const fs::path& path) { WriteFile(path, std::string(5000, 'x')); },
       absl::StatusCode::kDataLoss, "not a SQLite database"},
      {"another program's",
       [](const fs::path& path) {
         fs::remove(path);
         RunSql(path, "CREATE TABLE bookmarks (url TEXT)");
       },
       absl::StatusCode::kDataLoss, "another program's SQLite file"},
      {"a newer version's", [](const fs::path& path) { RunSql(path, "PRAGMA user_version = 99"); },
       absl::StatusCode::kFailedPrecondition,
       fmt::format("schema version 99, this program knows 1 to {}", kSchemaVersion)},
      {"log without its file",
       [](const fs::path& path) {
         fs::remove(path);
         WriteFile(path.string() + "-wal", "frames");
       },
       absl::StatusCode::kDataLoss, "the file is missing"},
      {"a folder",
       [](const fs::path& path) {
         fs::remove(path);
         fs::create_directory(path);
       },
       absl::StatusCode::kDataLoss, "not a regular file"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Scratch scratch;
    Fill(scratch.database());
    c.damage(scratch.database());
    const std::string before = ReadFile(scratch.database());
    const auto store = Store::Open(scratch.database());
    EXPECT_EQ(store.status().code(), c.code) << store.status();
    EXPECT_THAT(std::string(store.status().message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(store.status().message()), HasSubstr(scratch.database().string()));
    EXPECT_EQ(ReadFile(scratch.database()), before);
  }
}

TEST(DamageTest, ASecondCoordinatorIsKeptOut) {
  const Scratch scratch;
  auto first = Store::Open(scratch.database());
  ASSERT_TRUE(first.ok());
  const auto second = Store::Open(scratch.database());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another tundishd"));
  (*first)->Close();
  EXPECT_TRUE(Store::Open(scratch.database()).ok());
}

TEST(DamageTest, AMissingFolderIsAnError) {
  const Scratch scratch;
  const auto store = Store::Open(scratch / "none" / "tundish.db");
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("none"));
}

TEST(DamageTest, AFirstStartThatWasCutShortIsNoDamage) {
  const Scratch scratch;
  WriteFile(scratch.database().string() + ".new", "half a database");
  WriteFile(scratch.database().string() + ".new-wal", "half a log");
  EXPECT_TRUE(Store::Open(scratch.database()).ok());
  EXPECT_FALSE(fs::exists(scratch.database().string() + ".new"));
}

TEST(DamageTest, ATornLogLosesOnlyItsTornEnd) {
  const Scratch scratch;
  Fill(scratch.database());
  const fs::path wal = scratch.database().string() + "-wal";
  std::string log;
  {
    auto store = Store::Open(scratch.database());
    ASSERT_TRUE(store.ok());
    for (std::uint32_t seq = 201; seq <= 210; ++seq) {
      ASSERT_EQ(CommitNow(**store, Step("J", seq)), absl::OkStatus());
    }
    log = ReadFile(wal);
    fs::copy_file(scratch.database(), scratch / "copy.db");
  }
  // As after a power cut: the log's last frames are there in part.
  fs::remove(scratch.database());
  fs::rename(scratch / "copy.db", scratch.database());
  WriteFile(wal, log.substr(0, log.size() - 1000));
  auto store = Store::Open(scratch.database());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto state = (*store)->LoadState();
  EXPECT_EQ(state->jobs.size(), 0u);  // Fill writes no job row.
  const auto updates = (*store)->ReadUpdates("J", 0, 1000);
  ASSERT_TRUE(updates.ok());
  EXPECT_EQ(updates->size(), 209u);
}

/// Commits until it is killed; writes each acknowledged seq into `acknowledged`.
[[noreturn]] void CommitUntilKilled(const fs::path& path, int acknowledged) {
  auto store = Store::Open(path);
  if (!store.ok()) _exit(1);
  const auto state = (*store)->LoadState();
  if (!state.ok()) _exit(2);
  std::uint32_t seq = state->jobs.at("J").last_seq;
  while (true) {
    for (int i = 0; i < 20; ++i) {
      ++seq;
      (*store)->Commit(Step("J", seq, seq % 7 * 1000), [acknowledged, seq](absl::Status status) {
        if (!status.ok() || write(acknowledged, &seq, sizeof seq) != sizeof seq) _exit(3);
      });
    }
    (*store)->Flush();
  }
}

TEST(DamageTest, KilledAnywhereItKeepsWhatItAcknowledgedAndNoHalfBatch) {
  const Scratch scratch;
  {
    auto store = Store::Open(scratch.database());
    ASSERT_TRUE(store.ok());
    ASSERT_EQ(CommitNow(**store, NewJob("J")), absl::OkStatus());
  }
  std::uint32_t acknowledged = 0;
  for (int round = 0; round < 25; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      CommitUntilKilled(scratch.database(), ends[1]);
    }
    close(ends[1]);
    // The number of answers read before the kill varies the place where it strikes.
    for (int i = 0; i < 1 + round * 17 % 101; ++i) {
      std::uint32_t seq = 0;
      ASSERT_EQ(read(ends[0], &seq, sizeof seq), static_cast<ssize_t>(sizeof seq));
      ASSERT_EQ(seq, acknowledged + 1);
      acknowledged = seq;
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    for (std::uint32_t seq; read(ends[0], &seq, sizeof seq) == sizeof seq;) acknowledged = seq;
    close(ends[0]);

    auto store = Store::Open(scratch.database());
    ASSERT_TRUE(store.ok()) << store.status();
    const auto state = (*store)->LoadState();
    ASSERT_TRUE(state.ok()) << state.status();
    const StoredJob& job = state->jobs.at("J");
    EXPECT_GE(job.last_seq, acknowledged) << "an acknowledged batch is lost";
    EXPECT_EQ(job.progress.last_seq(), job.last_seq) << "half a batch is there";
    const auto updates = (*store)->ReadUpdates("J", 0, 1000000);
    ASSERT_TRUE(updates.ok()) << updates.status();
    EXPECT_EQ(updates->size(), job.last_seq) << "a gap";
    acknowledged = job.last_seq;
  }
}

}  // namespace
}  // namespace tundish::store
