#include "bench/control/scale.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/core.h>

#include "bench/control/daemon.h"
#include "bench/control/sim_agents.h"
#include "bench/control/submit_load.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

int ReadyNodes(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  const auto stub = v1::ClusterService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  v1::ListNodesResponse nodes;
  if (!stub->ListNodes(&context, {}, &nodes).ok()) return -1;
  int ready = 0;
  for (const v1::NodeStatus& node : nodes.nodes()) ready += node.state() == "ready";
  return ready;
}

/// Seconds until a call is answered.
double AwaitAnswer(const std::string& address) {
  const auto began = Clock::now();
  const auto stub = v1::JobService::NewStub(OwnChannel(address));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::ListJobsRequest request;
  request.set_limit(1);
  v1::ListJobsResponse response;
  const grpc::Status status = stub->ListJobs(&context, request, &response);
  return status.ok() ? Since(began) : -1;
}

}  // namespace

int BenchAgents(const ScaleOptions& options) {
  fmt::print("{:>7} {:>12} {:>14} {:>10} {:>14} {:>8}\n", "agents", "connected in", "cores used",
             "MiB", "KiB per agent", "lost");
  double empty_mib = 0;
  for (const int count : options.agents) {
    const ScratchFolder scratch(options.scratch);
    Daemon daemon(options.tundishd, scratch.path());
    daemon.Start();
    AwaitAnswer(daemon.address());
    if (empty_mib == 0) empty_mib = daemon.ReadUsage().resident_mib;
    SimAgents agents({.address = daemon.address(), .count = count});
    const auto began = Clock::now();
    agents.Start();
    const bool all = agents.AwaitConnected(count, std::chrono::seconds(60));
    const double connecting = Since(began);
    const uint64_t lost_before = agents.lost_streams();
    const double cpu_before = daemon.ReadUsage().cpu_seconds;
    const auto steady = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    const Daemon::Usage usage = daemon.ReadUsage();
    const double cores = (usage.cpu_seconds - cpu_before) / Since(steady);
    const int ready = ReadyNodes(daemon.address());
    const uint64_t lost = agents.lost_streams() - lost_before;
    fmt::print("{:>7} {:>10.2f} s {:>14.3f} {:>10.0f} {:>14.1f} {:>8}\n", count, connecting, cores,
               usage.resident_mib, 1024 * (usage.resident_mib - empty_mib) / count,
               lost + static_cast<uint64_t>(count - ready));
    const bool kept = all && lost == 0 && ready == count;
    if (!kept) {
      fmt::print("first limit: {} agents: {} of them ready, {} streams lost\n", count, ready, lost);
      return count <= 2000 ? 1 : 0;
    }
    if (cores > 1) fmt::print("first limit: one core is used up at {} agents\n", count);
  }
  return 0;
}

int BenchRestart(const ScaleOptions& options) {
  const ScratchFolder scratch(options.scratch);
  Daemon daemon(options.tundishd, scratch.path());
  daemon.Start();
  SubmitLoad load({.address = daemon.address()});
  load.Start();
  load.AwaitAnswers(static_cast<uint64_t>(options.jobs));
  const SubmitLoad::Result result = load.Finish();
  const int count = options.agents.front();
  // Devices of another kind than the jobs want: they stay journaled, and every agent stays idle.
  SimAgents agents({.address = daemon.address(), .count = count, .devices = 0});
  agents.Start();
  if (!agents.AwaitConnected(count, std::chrono::seconds(60))) {
    fmt::print("only {} of {} agents connected\n", agents.connected(), count);
    return 1;
  }
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double cpu_before = daemon.ReadUsage().cpu_seconds;
  std::this_thread::sleep_for(std::chrono::seconds(5));
  const double cores = (daemon.ReadUsage().cpu_seconds - cpu_before) / 5;

  daemon.End(SIGKILL);
  while (agents.connected() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto began = Clock::now();
  daemon.Start();
  const double control = AwaitAnswer(daemon.address());
  while (agents.connected() < count && Since(began) < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double back = Since(began);
  const auto stub = v1::JobService::NewStub(OwnChannel(daemon.address()));
  int missing = 0;
  for (const auto& [request, id] : result.jobs) {
    grpc::ClientContext context;
    v1::GetJobRequest get;
    get.set_job_id(id);
    v1::Job job;
    if (!stub->GetJob(&context, get, &job).ok()) ++missing;
    if (missing > 0 && missing < 4) fmt::print("VIOLATION job {} is missing\n", id);
  }
  fmt::print(
      "restart      {} jobs, {} agents (idle: {:.2f} cores): control back after {:.2f} s, every "
      "agent after {:.2f} s; {:.0f} MiB; {} jobs missing\n",
      result.jobs.size(), count, cores, control, back, daemon.ReadUsage().resident_mib, missing);
  return missing == 0 && agents.connected() == count ? 0 : 1;
}

}  // namespace tundish::bench
