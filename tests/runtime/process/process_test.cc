#include "runtime/process/process.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::process {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "process_test_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Command Shell(const std::string& script) {
    return {.program = "/bin/sh",
            .arguments = {"-c", script},
            .environment = {"PATH=/usr/bin:/bin", "WORD=steel"},
            .stdout_file = folder_ / "out",
            .stderr_file = folder_ / "err"};
  }

  std::string Read(const std::string& name) {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Process::OnExit Keep() {
    return [this](const Exit& exit) { exit_ = exit; };
  }

  /// Runs the loop until the exit was reported.
  Exit WaitForExit() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!exit_ && std::chrono::steady_clock::now() < limit) io_.run_one_until(limit);
    EXPECT_TRUE(exit_.has_value()) << "no exit was reported";
    return exit_.value_or(Exit());
  }

  std::filesystem::path folder_;
  asio::io_context io_;
  std::optional<Exit> exit_;
};

TEST_F(ProcessTest, GivesTheChildWhatWasSaidAndNothingElse) {
  const int leaked = open("/dev/null", O_RDONLY);  // No CLOEXEC, on purpose.
  ASSERT_GT(leaked, 2);
  ASSERT_EQ(setenv("TUNDISH_NOT_INHERITED", "1", 1), 0);
  std::ofstream(folder_ / "in") << "molten\n";
  Command command = Shell(
      "read line; echo $line $WORD ${TUNDISH_NOT_INHERITED-unset}; "
      "ls /proc/self/fd | tr '\\n' ' '; "
      "[ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo own session; echo oops >&2; exit 3");
  command.stdin_file = folder_ / "in";
  const auto process = Process::Start(io_.get_executor(), command, Keep());
  ASSERT_TRUE(process.ok()) << process.status();
  const Exit exit = WaitForExit();
  close(leaked);
  EXPECT_TRUE(exit.known);
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.signal, 0);
  // ls itself has 3 open for the folder.
  EXPECT_EQ(Read("out"), "molten steel unset\n0 1 2 3 own session\n");
  EXPECT_EQ(Read("err"), "oops\n");
  EXPECT_EQ(std::filesystem::status(folder_ / "out").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(ProcessTest, ReportsTheSignalThatEndedIt) {
  const auto process = Process::Start(io_.get_executor(), Shell("exec sleep 1000"), Keep());
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)->Signal(SIGKILL).ok());
  const Exit exit = WaitForExit();
  EXPECT_TRUE(exit.known);
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_EQ((*process)->Signal(SIGKILL).code(), absl::StatusCode::kNotFound);
}

TEST_F(ProcessTest, NamesWhatCannotBeStarted) {
  struct Case {
    const char* name;
    Command command;
    const char* want;
  };
  const Case cases[] = {
      {"no such program", {.program = "/no/such/rank"}, "cannot start '/no/such/rank': No such"},
      {"a folder", {.program = "/tmp"}, "cannot start '/tmp': it is not a file"},
      {"not executable", {.program = "/etc/passwd"}, "cannot start '/etc/passwd': Permission"},
      {"no input", {.program = "/bin/true", .stdin_file = "/no/in"}, "cannot read '/no/in'"},
      {"no output", {.program = "/bin/true", .stdout_file = "/no/out"}, "cannot write '/no/out'"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto process = Process::Start(io_.get_executor(), c.command, Keep());
    ASSERT_EQ(process.status().code(), absl::StatusCode::kInvalidArgument) << process.status();
    EXPECT_THAT(std::string(process.status().message()), HasSubstr(c.want));
  }
}

TEST_F(ProcessTest, AdoptsByIdentityOnly) {
  const auto pid = Spawn(Shell("exec sleep 1000"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  const auto identity = Identify(*pid);
  ASSERT_TRUE(identity.ok()) << identity.status();

  Identity other = *identity;
  other.start_ticks += 1;
  EXPECT_EQ(Process::Adopt(io_.get_executor(), other, Keep()).status().code(),
            absl::StatusCode::kNotFound);

  const auto adopted = Process::Adopt(io_.get_executor(), *identity, Keep());
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  ASSERT_TRUE((*adopted)->Signal(SIGTERM).ok());
  const Exit exit = WaitForExit();
  EXPECT_TRUE(exit.known);  // It is our own child after all.
  EXPECT_EQ(exit.signal, SIGTERM);
  EXPECT_EQ(Process::Adopt(io_.get_executor(), *identity, Keep()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ProcessTest, AZombieIsNotAlive) {
  const auto pid = Spawn(Shell("exit 0"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, *pid, &info, WEXITED | WNOWAIT), 0);  // Ended, not reaped.
  EXPECT_EQ(Identify(*pid).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
}

/// While it lives, no file can be opened.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(ProcessTest, SaysThatItCannotTellWhetherAProcessRuns) {
  const auto pid = Spawn(Shell("exec sleep 1000"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  const auto identity = Identify(*pid);
  ASSERT_TRUE(identity.ok()) << identity.status();
  {
    const NoMoreFiles limit;
    EXPECT_EQ(Identify(*pid).status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(Process::Adopt(io_.get_executor(), *identity, Keep()).status().code(),
              absl::StatusCode::kInternal);
    EXPECT_EQ(FindSpawned({"-c"}).status().code(), absl::StatusCode::kInternal);
  }
  kill(*pid, SIGKILL);
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
}

TEST_F(ProcessTest, FindsWhatItStartedByItsFirstArguments) {
  Command command = Shell("kill -STOP $$; exit 0");
  const std::string mark = folder_;  // No other process has it.
  command.arguments.insert(command.arguments.end(), {mark, "last"});
  const auto pid = Spawn(command);
  ASSERT_TRUE(pid.ok()) << pid.status();
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, *pid, &info, WSTOPPED), 0);  // The kernel has set its arguments by now.
  const auto found = FindSpawned({"-c", "kill -STOP $$; exit 0", mark});
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ((*found)->identity, *Identify(*pid));
  EXPECT_EQ((*found)->arguments, command.arguments);
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"-c", "kill -STOP $$; exit 0", mark + "x"},
        std::vector<std::string>{"kill -STOP $$; exit 0", mark},
        std::vector<std::string>{"-c", "kill -STOP $$; exit 0", mark, "last", "more"}}) {
    const auto none = FindSpawned(other);
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_FALSE(none->has_value());
  }
  kill(*pid, SIGKILL);
  ASSERT_EQ(waitid(P_PID, *pid, &info, WEXITED | WNOWAIT), 0);  // Ended, not reaped.
  const auto ended = FindSpawned({"-c", "kill -STOP $$; exit 0", mark});
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_FALSE(ended->has_value());
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
}

TEST_F(ProcessTest, DoesNotReportAfterItIsGone) {
  auto process = Process::Start(io_.get_executor(), Shell("exec sleep 1000"), Keep());
  ASSERT_TRUE(process.ok()) << process.status();
  const pid_t pid = (*process)->identity().pid;
  process->reset();
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  io_.run();
  EXPECT_FALSE(exit_.has_value());
}

TEST(InheritedEnvironmentTest, KeepsNamesAndPrefixes) {
  setenv("TUNDISH_TEST_A", "1", 1);
  setenv("TUNDISH_TEST_B", "2=3", 1);
  setenv("TUNDISH_TEST", "4", 1);
  EXPECT_THAT(InheritedEnvironment({"TUNDISH_TEST_*"}),
              testing::UnorderedElementsAre("TUNDISH_TEST_A=1", "TUNDISH_TEST_B=2=3"));
  EXPECT_THAT(InheritedEnvironment({"TUNDISH_TEST"}), testing::ElementsAre("TUNDISH_TEST=4"));
}

}  // namespace
}  // namespace tundish::process
