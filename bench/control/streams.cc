#include "bench/control/streams.h"

#include <chrono>
#include <csignal>
#include <mutex>
#include <thread>

#include <fmt/core.h>

#include "bench/control/daemon.h"
#include "bench/control/sim_agents.h"
#include "bench/control/submit_load.h"

namespace tundish::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Notes when each step's point came, and whether anything is missing.
class Reader : public grpc::ClientReadReactor<v1::WatchJobResponse> {
 public:
  Reader(v1::JobService::Stub& stub, const std::string& job_id, uint32_t steps, bool reads)
      : arrived_(steps), reads_(reads) {
    request_.set_job_id(job_id);
    stub.async()->WatchJob(&context_, &request_, this);
    if (reads_) StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const auto now = Clock::now();
    for (const v1::JobUpdate& update : response_.updates()) {
      const uint32_t first = update.has_dropped() ? update.dropped().first() : update.seq();
      if (first != next_) ++gaps_;
      next_ = 1 + (update.has_dropped() ? update.dropped().last() : update.seq());
      if (update.has_metric() && update.metric().step() < arrived_.size()) {
        arrived_[update.metric().step()] = now;
      }
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status&) override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    ended_.notify_all();
  }
  void EndAndWait() {
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return done_; });
  }
  const std::vector<Clock::time_point>& arrived() const { return arrived_; }
  int gaps() const { return gaps_; }

 private:
  grpc::ClientContext context_;
  v1::WatchJobRequest request_;
  v1::WatchJobResponse response_;
  std::vector<Clock::time_point> arrived_;
  const bool reads_;
  uint32_t next_ = 1;
  int gaps_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
};

struct Delivery {
  std::vector<double> milliseconds;
  int missing = 0;
  int gaps = 0;
  double cores = 0;
  double peak_mib = 0;
};

Delivery Run(const StreamOptions& options, int stopped_readers) {
  const ScratchFolder scratch(options.scratch);
  Daemon daemon(options.tundishd, scratch.path());
  daemon.Start();
  const auto steps = static_cast<uint32_t>(options.steps_per_second * options.seconds);
  const auto channel = OwnChannel(daemon.address());
  const auto stub = v1::JobService::NewStub(channel);
  v1::SubmitJobRequest submit;
  submit.set_request_id("streams");
  *submit.mutable_spec() = SmallSpec(1);
  submit.mutable_spec()->mutable_parallel()->set_data(options.ranks);
  submit.mutable_spec()->mutable_training()->set_global_batch(options.ranks);
  submit.mutable_spec()->mutable_training()->set_steps(10 * steps);
  v1::SubmitJobResponse job;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  if (const grpc::Status status = stub->SubmitJob(&context, submit, &job); !status.ok()) {
    fmt::print("submit: {}\n", status.error_message());
    return {};
  }
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs;
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < options.readers + stopped_readers; ++i) {
    stubs.push_back(v1::JobService::NewStub(OwnChannel(daemon.address())));
    readers.push_back(
        std::make_unique<Reader>(*stubs.back(), job.job_id(), steps, i < options.readers));
  }
  SimAgents agents({.address = daemon.address(),
                    .devices = options.ranks,
                    .steps_per_second = options.steps_per_second,
                    .steps = steps});
  agents.Start();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds + 3));
  const Daemon::Usage usage = daemon.ReadUsage();
  Delivery delivery{.cores = usage.cpu_seconds / (options.seconds + 3), .peak_mib = usage.peak_mib};
  agents.Stop();
  for (auto& reader : readers) reader->EndAndWait();
  for (int i = 0; i < options.readers; ++i) {
    delivery.gaps += readers[i]->gaps();
    for (size_t step = 0; step < agents.step_times().size(); ++step) {
      const auto arrived = readers[i]->arrived()[step];
      if (arrived == Clock::time_point()) {
        ++delivery.missing;
      } else {
        delivery.milliseconds.push_back(
            std::chrono::duration<double, std::milli>(arrived - agents.step_times()[step]).count());
      }
    }
  }
  daemon.End(SIGTERM);
  return delivery;
}

void Print(const char* what, const StreamOptions& options, const Delivery& delivery) {
  fmt::print(
      "{:<26} {} readers x {} ranks x {:.0f} steps/s: {} deliveries, p50 {:.1f} p95 {:.1f} p99 "
      "{:.1f} max {:.1f} ms; {} missing, {} gaps; {:.2f} cores, {:.0f} MiB\n",
      what, options.readers, options.ranks, options.steps_per_second, delivery.milliseconds.size(),
      Percentile(delivery.milliseconds, 50), Percentile(delivery.milliseconds, 95),
      Percentile(delivery.milliseconds, 99), Percentile(delivery.milliseconds, 100),
      delivery.missing, delivery.gaps, delivery.cores, delivery.peak_mib);
}

}  // namespace

int BenchStreams(const StreamOptions& options) {
  const Delivery all = Run(options, 0);
  Print("every reader reads", options, all);
  const Delivery stopped = Run(options, 1);
  Print("one more takes nothing", options, stopped);
  fmt::print("ratio of the p99s          {:.2f}\n",
             Percentile(stopped.milliseconds, 99) / Percentile(all.milliseconds, 99));
  const bool good = !all.milliseconds.empty() && !stopped.milliseconds.empty() &&
                    all.gaps + stopped.gaps + all.missing + stopped.missing == 0;
  return good ? 0 : 1;
}

}  // namespace tundish::bench
