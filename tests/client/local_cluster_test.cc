// `tundish up` and `tundish down` as programs, with daemons that stand beside them.
#include <array>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <optional>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/local/daemon.h"
#include "client/local/network.h"
#include "tests/client/program.h"
#include "tundish/v1/agent_state.pb.h"

namespace tundish::client {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A port of loopback that is bound while this lives.
class HeldPort {
 public:
  HeldPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(fd_, 1);
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~HeldPort() { close(fd_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int fd_;
  int port_ = 0;
};

class LocalClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "upXXXXXX";
    folder_ = mkdtemp(pattern.data());
    // `up` looks for the daemons beside its own program.
    fs::copy_file(TUNDISH_BINARY, folder_ + "/tundish");
    fs::copy_file(FAKE_DAEMON, folder_ + "/tundishd");
    fs::copy_file(FAKE_DAEMON, folder_ + "/tundish-agent");
    const std::array<HeldPort, 3> held;
    for (const HeldPort& port : held) addresses_.push_back(port.address());
  }
  void TearDown() override {
    Tundish({"down", "--state-dir", folder_ + "/state"});
    fs::remove_all(folder_);
  }
  Outcome Tundish(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), folder_ + "/tundish");
    return RunProgram(arguments);
  }
  std::vector<std::string> UpArguments() const {
    return {"up",     "--state-dir", folder_ + "/state", "--listen",   addresses_[0],
            "--http", addresses_[1], "--agent-http",     addresses_[2]};
  }
  Outcome Up(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = UpArguments();
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tundish(arguments);
  }
  Outcome Down() { return Tundish({"down", "--state-dir", folder_ + "/state"}); }
  bool Runs(const std::string& name) const {
    return Daemon::Find(folder_ + "/state/" + name + ".pid").has_value();
  }
  std::string Contents(const std::string& name) const {
    std::string text;
    std::getline(std::ifstream(folder_ + "/" + name), text);
    return text;
  }
  void Fail(const std::string& name) { std::ofstream(folder_ + "/" + name + ".fail") << "x"; }

  std::string folder_;
  std::vector<std::string> addresses_;
};

TEST_F(LocalClusterTest, UpAndDownAreIdempotent) {
  EXPECT_EQ(Down().code, 0);
  const Outcome up = Up();
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("tundishd       started, pid " + Contents("tundishd.ran") +
                                ", gRPC " + addresses_[0]));
  EXPECT_THAT(up.out, HasSubstr("tundish-agent  started"));
  EXPECT_TRUE(Runs("tundishd"));
  EXPECT_TRUE(Runs("tundish-agent"));
  EXPECT_NE(getsid(std::stoi(Contents("tundishd.ran"))), getsid(0));

  const Outcome again = Up();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("tundishd       already runs"));
  EXPECT_THAT(again.out, HasSubstr("tundish-agent  already runs"));

  const Outcome other = Up({"--devices", "cpu:8"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("tundish-agent already runs"));
  EXPECT_THAT(other.err, HasSubstr("--devices cpu:4"));
  EXPECT_TRUE(Runs("tundish-agent"));

  const Outcome down = Down();
  EXPECT_EQ(down.code, 0) << down.err;
  EXPECT_THAT(down.out, HasSubstr("tundish-agent  stopped"));
  EXPECT_FALSE(Runs("tundishd"));
  EXPECT_FALSE(Runs("tundish-agent"));
  EXPECT_EQ(Contents("tundish-agent.signal"), std::to_string(SIGINT));
  EXPECT_EQ(Contents("tundishd.signal"), std::to_string(SIGTERM));
  EXPECT_THAT(Down().out, HasSubstr("nothing runs"));
}

TEST_F(LocalClusterTest, StartsOnlyWhatIsMissing) {
  ASSERT_EQ(Up().code, 0);
  StopDaemon(*Daemon::Find(folder_ + "/state/tundish-agent.pid"), SIGKILL, std::chrono::seconds(5));
  const Outcome up = Up();
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("tundishd       already runs"));
  EXPECT_THAT(up.out, HasSubstr("tundish-agent  started"));
}

TEST_F(LocalClusterTest, APortInUseIsNamedAndNothingIsLeft) {
  for (const size_t index : {0, 1, 2}) {
    const HeldPort held;
    const std::string before = std::exchange(addresses_[index], held.address());
    const Outcome up = Up();
    EXPECT_EQ(up.code, 4);
    EXPECT_THAT(up.err, HasSubstr(held.address() + ": the port is in use"));
    EXPECT_THAT(Lines(up.err), testing::SizeIs(1));
    EXPECT_FALSE(Runs("tundishd"));
    EXPECT_FALSE(Runs("tundish-agent"));
    addresses_[index] = before;
  }
}

TEST_F(LocalClusterTest, ADaemonThatEndsIsQuotedAndNothingIsLeft) {
  for (const char* name : {"tundishd", "tundish-agent"}) {
    Fail(name);
    const Outcome up = Up();
    EXPECT_EQ(up.code, 4);
    EXPECT_THAT(up.err, HasSubstr(std::string(name) + " ended: error: " + name + " cannot go on"));
    EXPECT_FALSE(Runs("tundishd"));
    EXPECT_FALSE(Runs("tundish-agent"));
    fs::remove(folder_ + "/" + name + ".fail");
  }
}

TEST_F(LocalClusterTest, AMissingProgramIsNamed) {
  fs::remove(folder_ + "/tundish-agent");
  const Outcome up = Up();
  EXPECT_EQ(up.code, 4);
  EXPECT_THAT(up.err, HasSubstr("cannot start '" + folder_ + "/tundish-agent'"));
  EXPECT_FALSE(Runs("tundishd"));
}

TEST_F(LocalClusterTest, ARecycledPidIsNotTaken) {
  fs::create_directories(folder_ + "/state");
  // This test's own pid, with another process's start time.
  const auto self = process::Identify(getpid());
  ASSERT_TRUE(self.ok()) << self.status();
  std::ofstream(folder_ + "/state/tundish-agent.pid")
      << self->pid << " " << self->start_ticks + 1 << " " << self->boot_id << "\n";
  EXPECT_THAT(Down().out, HasSubstr("nothing runs"));
  for (const char* torn : {"", "12", "x y z", "0 5 b", "-4 5 b", "1 5 b", "12 5"}) {
    std::ofstream(folder_ + "/state/tundishd.pid") << torn;
    EXPECT_FALSE(Runs("tundishd")) << torn;
  }
}

TEST_F(LocalClusterTest, ADaemonThatIgnoresTheSignalIsKilled) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string script = "trap '' TERM; echo on > " + fifo + "; exec tail -f /dev/null";
  const auto daemon = Daemon::Start({"/bin/sh", "-c", script}, folder_ + "/log");
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  std::string line;
  std::getline(std::ifstream(fifo), line);  // Returns when the signal is ignored.
  EXPECT_FALSE(StopDaemon(*daemon, SIGTERM, std::chrono::milliseconds(50)));
  EXPECT_TRUE(daemon->WaitForExit(std::chrono::milliseconds(0)));
}

TEST_F(LocalClusterTest, DownKillsTheRanksOfAKilledAgent) {
  const std::string agent = folder_ + "/state/agent";
  const auto start_rank = [&](const std::string& id, uint64_t more_ticks) {
    auto rank = Daemon::Start({"/bin/sleep", "3600"}, folder_ + "/log");
    EXPECT_TRUE(rank.ok()) << rank.status();
    const auto identity = process::Identify(rank->pid());
    EXPECT_TRUE(identity.ok()) << identity.status();
    v1::WorkerRecord record;
    record.mutable_start()->set_worker_id(id);
    record.set_pid(static_cast<uint32_t>(identity->pid));
    record.set_start_ticks(identity->start_ticks + more_ticks);
    record.set_boot_id(identity->boot_id);
    fs::create_directories(agent + "/workers/" + id);
    std::ofstream(agent + "/workers/" + id + "/record.pb") << record.SerializeAsString();
    return *std::move(rank);
  };
  const Daemon first = start_rank("w1", 0), second = start_rank("w2", 0);
  const Daemon recycled_pid = start_rank("w3", 1);
  fs::create_directories(agent + "/workers/w4");
  std::ofstream(agent + "/workers/w4/record.pb") << "torn";
  const auto runs = [](const Daemon& rank) {
    return !rank.WaitForExit(std::chrono::milliseconds(0));
  };

  // An agent that `up` did not start has the folder.
  const int lock = open((agent + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  EXPECT_THAT(Down().out, HasSubstr("nothing runs"));
  EXPECT_TRUE(runs(first));
  close(lock);

  const Outcome down = Down();
  EXPECT_EQ(down.code, 0) << down.err;
  EXPECT_THAT(down.out, HasSubstr("2 ranks        killed"));
  EXPECT_THAT(down.out, HasSubstr(std::to_string(first.pid())));
  EXPECT_THAT(down.out, HasSubstr(std::to_string(second.pid())));
  EXPECT_FALSE(runs(first));
  EXPECT_FALSE(runs(second));
  EXPECT_TRUE(runs(recycled_pid));
  StopDaemon(recycled_pid, SIGKILL, std::chrono::seconds(10));
  EXPECT_THAT(Down().out, HasSubstr("nothing runs"));
}

TEST(CheckCanListenTest, NamesFlagAndAddress) {
  EXPECT_FALSE(CheckCanListen("127.0.0.1:0", "--listen").ok());
  EXPECT_FALSE(CheckCanListen("127.0.0.1", "--listen").ok());
  EXPECT_FALSE(CheckCanListen("203.0.113.1:7400", "--listen").ok());
  const HeldPort held;
  EXPECT_THAT(std::string(CheckCanListen(held.address(), "--http").message()),
              HasSubstr("--http " + held.address()));
}

}  // namespace
}  // namespace tundish::client
