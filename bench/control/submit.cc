#include "bench/control/submit.h"

#include <csignal>
#include <fcntl.h>
#include <set>
#include <thread>
#include <unistd.h>

#include <fmt/core.h>

#include "bench/control/daemon.h"
#include "bench/control/submit_load.h"
#include "server/store/store.h"

namespace tundish::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Violations = std::vector<std::string>;

/// Synced appends per second of one thread that waits for each: what a coordinator without group
/// commit could do at best.
std::vector<double> MeasureSingleSyncs(const std::filesystem::path& folder) {
  const std::string path = folder / "syncs";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string record(4096, 'x');
  std::vector<double> milliseconds;
  for (int i = 0; i < 200; ++i) {
    const auto began = Clock::now();
    if (write(file, record.data(), record.size()) < 0 || fdatasync(file) != 0) break;
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  close(file);
  return milliseconds;
}

Violations CompareWithStore(const SubmitLoad::Result& result,
                            const std::filesystem::path& database) {
  Violations violations = result.violations;
  const auto store = store::Store::Open(database);
  if (!store.ok()) return {store.status().ToString()};
  const auto state = (*store)->LoadState();
  if (!state.ok()) return {state.status().ToString()};
  std::map<std::string, std::string> job_of_request;
  for (const auto& [id, stored] : state->jobs) {
    const auto [known, added] = job_of_request.emplace(stored.job.request_id(), id);
    if (!added) {
      violations.push_back(fmt::format("{} made jobs {} and {}", known->first, known->second, id));
    }
  }
  for (const auto& [request, job] : result.jobs) {
    const auto found = job_of_request.find(request);
    if (found == job_of_request.end() || found->second != job) {
      violations.push_back(fmt::format("{} was acknowledged as job {}, the store has {}", request,
                                       job,
                                       found == job_of_request.end() ? "none" : found->second));
    }
  }
  if (state->requests.size() != state->jobs.size()) {
    violations.push_back(fmt::format("{} requests and {} jobs are stored", state->requests.size(),
                                     state->jobs.size()));
  }
  return violations;
}

/// What was acknowledged is answered the same way again; another spec is refused by name of the
/// field.
Violations Repeat(const SubmitLoad::Result& result, const std::string& address) {
  Violations violations;
  const auto stub = v1::JobService::NewStub(OwnChannel(address));
  int left = 100;
  for (const auto& [request_id, job_id] : result.jobs) {
    if (left-- == 0) break;
    const uint64_t seed = std::stoull(request_id.substr(request_id.find('-') + 1));
    for (const bool changed : {false, true}) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      v1::SubmitJobRequest request;
      v1::SubmitJobResponse response;
      request.set_request_id(request_id);
      *request.mutable_spec() = SmallSpec(changed ? seed + 1 : seed);
      const grpc::Status status = stub->SubmitJob(&context, request, &response);
      const bool right = changed
                             ? status.error_code() == grpc::StatusCode::ALREADY_EXISTS &&
                                   status.error_message().find("training.seed") != std::string::npos
                             : status.ok() && response.existing() && response.job_id() == job_id;
      if (!right) {
        violations.push_back(fmt::format(
            "{} {}: code {} \"{}\" job {}", request_id, changed ? "with another seed" : "repeated",
            static_cast<int>(status.error_code()), status.error_message(), response.job_id()));
      }
    }
  }
  return violations;
}

int Report(const Violations& violations) {
  for (const std::string& one : violations) fmt::print("VIOLATION {}\n", one);
  return violations.empty() ? 0 : 1;
}

}  // namespace

int BenchSubmit(const SubmitOptions& options) {
  const ScratchFolder scratch(options.scratch);
  const std::vector<double> syncs = MeasureSingleSyncs(scratch.path());
  Daemon daemon(options.tundishd, scratch.path());
  daemon.Start();
  SubmitLoad load({.address = daemon.address(), .clients = options.clients});
  load.Start();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  const Daemon::Usage usage = daemon.ReadUsage();
  const SubmitLoad::Result result = load.Finish();
  daemon.End(SIGTERM);
  const double rate = result.answers / result.seconds;
  const double single = 1000 / Percentile(syncs, 50);
  fmt::print(
      "submissions  {:.0f}/s durable, {} clients, {} jobs in {:.1f} s; latency p50 {:.1f} p95 "
      "{:.1f} p99 {:.1f} max {:.1f} ms\n"
      "peer         {:.0f}/s: one synced 4 KiB append after the other (p50 {:.2f} p99 {:.2f} ms)\n"
      "ratio        {:.1f}\n"
      "tundishd     {:.0f} µs of processor time per job, {:.0f} MiB\n",
      rate, options.clients, result.jobs.size(), result.seconds, Percentile(result.latency_ms, 50),
      Percentile(result.latency_ms, 95), Percentile(result.latency_ms, 99),
      Percentile(result.latency_ms, 100), single, Percentile(syncs, 50), Percentile(syncs, 99),
      rate / single, 1e6 * usage.cpu_seconds / static_cast<double>(result.answers),
      usage.resident_mib);
  return Report(CompareWithStore(result, daemon.database()));
}

int CheckExactlyOnce(const SubmitOptions& options, int kills) {
  const ScratchFolder scratch(options.scratch);
  Daemon daemon(options.tundishd, scratch.path());
  daemon.Start();
  SubmitLoad load({.address = daemon.address(), .clients = options.clients, .copies = 2});
  load.Start();
  for (int kill = 0; kill < kills; ++kill) {
    // Kills that only hit a coordinator that is starting prove little: every one is under load.
    load.AwaitAnswers(50);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(Random(0, 40)));
    daemon.End(SIGKILL);
    daemon.Start();
  }
  const SubmitLoad::Result result = load.Finish();
  Violations violations = Repeat(result, daemon.address());
  daemon.End(SIGTERM);
  for (std::string& one : CompareWithStore(result, daemon.database())) {
    violations.push_back(std::move(one));
  }
  fmt::print("exactly once {} kills, {} requests acknowledged, {} calls repeated, {} violations\n",
             kills, result.jobs.size(), result.repeats, violations.size());
  return Report(violations);
}

}  // namespace tundish::bench
