#include "bench/control/daemon.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sstream>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include "runtime/base/check.h"

namespace tundish::bench {
namespace {

std::mt19937& Generator() {
  static std::mt19937 generator(1);
  return generator;
}

/// Free a moment ago.
int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  TUNDISH_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  TUNDISH_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(listener);
  return ntohs(address.sin_port);
}

double StatusMib(pid_t pid, const std::string& key) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  return 0;
}

}  // namespace

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(
      std::min<double>(values.size() - 1, values.size() * percent / 100));
  std::ranges::nth_element(values, values.begin() + at);
  return values[at];
}

double Random(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(Generator());
}

void SeedRandom(unsigned seed) {
  Generator().seed(seed);
}

ScratchFolder::ScratchFolder(const std::filesystem::path& parent) {
  std::string pattern = (parent / "control-bench-XXXXXX").string();
  TUNDISH_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Daemon::Daemon(std::filesystem::path binary, std::filesystem::path folder,
               std::vector<std::string> flags)
    : binary_(std::move(binary)), folder_(std::move(folder)), flags_(std::move(flags)) {
  address_ = fmt::format("127.0.0.1:{}", FreePort());
  http_ = fmt::format("127.0.0.1:{}", FreePort());
}

Daemon::~Daemon() {
  End(SIGKILL);
}

void Daemon::Start() {
  std::vector<std::string> words = {binary_,           "--listen",    address_,
                                    "--http",          http_,         "--state-dir",
                                    folder_ / "state", "--log-level", "warning"};
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder_ / "tundishd.log";
  const pid_t parent = getpid();
  pid_ = fork();
  TUNDISH_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  // Only async-signal-safe calls from here on.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(output, 1);
  dup2(output, 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

void Daemon::End(int signal) {
  if (pid_ < 0) return;
  kill(pid_, signal);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
}

Daemon::Usage Daemon::ReadUsage() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return {.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK)),
          .resident_mib = StatusMib(pid_, "VmRSS:"),
          .peak_mib = StatusMib(pid_, "VmHWM:")};
}

}  // namespace tundish::bench
