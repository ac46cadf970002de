// tundish-rank: one shard of one job. Started by an agent, talks to it over a Unix socket.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <CLI/CLI.hpp>
#include <absl/cleanup/cleanup.h>
#include <spdlog/spdlog.h>

#include "runtime/base/logging.h"
#include "worker/engine/device/process.h"
#include "worker/rank/agent_link.h"
#include "worker/rank/log_sink.h"
#include "worker/rank/rendezvous_store.h"
#include "worker/rank/session.h"

namespace tundish::rank {
namespace {

constexpr const char* kSecretVariable = "TUNDISH_WORKER_SECRET";

struct Flags {
  std::string agent;
  std::string worker_id;
  std::string job_id;
  int threads = 1;
  std::string devices = "cpu:0";
  std::string log_level = "info";
  bool spare = false;
};

// Seconds since this process was started: field 22 of /proc/self/stat, in clock ticks since boot
// (proc(5)). 0 when it cannot be read.
double SecondsSinceStart() {
  std::ifstream file("/proc/self/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return 0;
  unsigned long long ticks = 0;
  if (std::sscanf(stat.c_str() + after_name + 1,
                  " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%llu",
                  &ticks) != 1) {
    return 0;
  }
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The secret, which leaves the environment: processes started from here do not inherit it, and
// /proc/PID/environ, which shows the bytes the process was started with, no longer has it.
std::string TakeSecret() {
  char* value = std::getenv(kSecretVariable);
  std::string secret = value != nullptr ? value : "";
  if (value != nullptr) explicit_bzero(value, secret.size());
  unsetenv(kSecretVariable);
  return secret;
}

// The sink stays with the logger and must be detached before the link or the session goes.
std::shared_ptr<LogSink> SendLogLinesTo(AgentLink& link, const Session& session) {
  auto sink = std::make_shared<LogSink>([&](const std::string& level, std::string text) {
    v1::RankReport report;
    report.set_job_epoch(session.job_epoch());
    v1::LogLine& line = *report.mutable_log();
    line.set_dp(session.dp());
    line.set_tp(session.tp());
    line.set_job_epoch(session.job_epoch());
    line.set_level(level);
    line.set_text(std::move(text));
    link.Report(std::move(report));
  });
  spdlog::default_logger()->sinks().push_back(sink);  // No other thread logs yet.
  return sink;
}

// False when the agent refused this rank.
bool RunRank(const Flags& flags, std::string secret) {
  // Bits depend on the thread count; pools are made once.
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);

  const auto channel = OpenAgentChannel(flags.agent);
  std::unique_ptr<AgentLink> link;
  std::atomic<bool> refused = false;
  Session session({.report = [&](v1::RankReport report) { link->Report(std::move(report)); },
                   .make_store =
                       [&](uint32_t job_epoch) {
                         const Identity self = link->identity();
                         return c10::make_intrusive<RendezvousStore>(channel, self.job_id,
                                                                     self.worker_id, job_epoch);
                       }});
  link = std::make_unique<AgentLink>(
      channel,
      Identity{.worker_id = flags.worker_id,
               .job_id = flags.job_id,
               .secret = std::move(secret),
               .spare = flags.spare},
      [&session](const v1::RankOrder& order) { session.OnOrder(order); },
      [&](const std::string& error) {
        spdlog::critical("event=refused worker={} error=\"{}\"", flags.worker_id, error);
        refused = true;
        v1::RankOrder exit;
        exit.mutable_exit();
        session.OnOrder(exit);
      });
  const std::shared_ptr<LogSink> sink = SendLogLinesTo(*link, session);
  // gRPC's threads log until the link is closed.
  const absl::Cleanup leave = [&] {
    sink->Detach();
    link->Close();
  };
  link->Start();

  v1::Ready ready;
  ready.set_pid(static_cast<uint32_t>(getpid()));
  ready.set_startup_seconds(SecondsSinceStart());
  ready.set_cpu_capability(at::get_cpu_capability());
  session.Run(ready, flags.spare);
  return !refused;
}

int Main(int argc, char** argv) {
  std::string secret = TakeSecret();
  Flags flags;
  CLI::App app("One rank of a Tundish job; started by tundish-agent.");
  app.add_option("--agent", flags.agent, "The agent's socket, unix:PATH")->required();
  app.add_option("--worker-id", flags.worker_id)->required();
  app.add_option("--job-id", flags.job_id)->required();
  app.add_option("--threads", flags.threads, "Intra-op threads")->check(CLI::Range(1, 256));
  app.add_option("--devices", flags.devices, "Comma-separated, e.g. cpu:0");
  app.add_option("--log-level", flags.log_level);
  app.add_flag("--spare", flags.spare, "Stand by: be no worker until the agent says which");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const absl::Status status = InitLogging("tundish-rank", flags.log_level); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 2;
  }
  try {
    if (!RunRank(flags, std::move(secret))) return 1;
  } catch (const std::exception& error) {
    spdlog::critical("event=rank_died error=\"{}\"", error.what());
    return 1;
  }
  spdlog::info("event=exit");
  return 0;
}

}  // namespace
}  // namespace tundish::rank

int main(int argc, char** argv) {
  tundish::device::PrepareProcess();
  const int code = tundish::rank::Main(argc, argv);
  spdlog::shutdown();
  std::fflush(nullptr);
  // LibTorch and gRPC take their time to tear down process-wide state that the kernel frees anyway.
  std::_Exit(code);
}
