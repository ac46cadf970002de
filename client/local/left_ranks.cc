#include "client/local/left_ranks.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/local/daemon.h"
#include "tundish/v1/agent_state.pb.h"

namespace tundish::client {
namespace {

namespace fs = std::filesystem;

/// For all ranks together: the end of a large process, its device memory included, takes a while.
constexpr std::chrono::seconds kEndLimit{30};

/// The lock an agent holds on its state directory while it lives, so that none starts meanwhile.
class AgentLock {
 public:
  explicit AgentLock(const std::string& agent_state_dir)
      : fd_(open((agent_state_dir + "/lock").c_str(), O_RDWR | O_CLOEXEC)),
        held_(fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) {}
  ~AgentLock() {
    if (fd_ >= 0) close(fd_);
  }
  AgentLock(const AgentLock&) = delete;
  AgentLock& operator=(const AgentLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_;
};

std::vector<Daemon> LeftRanks(const std::string& agent_state_dir) {
  std::vector<Daemon> ranks;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(agent_state_dir + "/workers", ignored)) {
    std::ifstream file(entry.path() / "record.pb", std::ios::binary);
    v1::WorkerRecord record;
    if (!file || !record.ParseFromIstream(&file)) continue;
    if (auto rank = Daemon::Hold({.pid = static_cast<pid_t>(record.pid()),
                                  .start_ticks = record.start_ticks(),
                                  .boot_id = record.boot_id()})) {
      ranks.push_back(*std::move(rank));
    }
  }
  std::ranges::sort(ranks, {}, &Daemon::pid);
  return ranks;
}

}  // namespace

std::string KillLeftRanks(const std::string& agent_state_dir) {
  const AgentLock lock(agent_state_dir);
  if (!lock.held()) return "";
  const std::vector<Daemon> ranks = LeftRanks(agent_state_dir);
  for (const Daemon& rank : ranks) rank.Signal(SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + kEndLimit;
  std::vector<pid_t> ended, lasting;
  for (const Daemon& rank : ranks) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    (rank.WaitForExit(left) ? ended : lasting).push_back(rank.pid());
  }
  std::string text;
  if (!ended.empty()) {
    text += fmt::format("{:<14} killed, left behind by an agent that is gone (pid {})\n",
                        ended.size() == 1 ? "1 rank" : fmt::format("{} ranks", ended.size()),
                        fmt::join(ended, ", "));
  }
  if (!lasting.empty()) {
    text += fmt::format("{:<14} got SIGKILL and did not end within {} s (pid {})\n",
                        lasting.size() == 1 ? "1 rank" : fmt::format("{} ranks", lasting.size()),
                        kEndLimit.count(), fmt::join(lasting, ", "));
  }
  return text;
}

}  // namespace tundish::client
