#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "server/scheduler/scheduler.h"

// How long one decision of the scheduler takes in a large cluster: a run ends, its devices come
// back, and what waits is looked at. Beside it, in the same run: a first-come-first-served loop
// over all devices and all jobs, as the scheduler's first version was.
namespace {

using namespace tundish::scheduler;
using std::chrono::steady_clock;

struct Options {
  int nodes = 1000;
  int devices = 8;
  int queued = 10'000;
  int decisions = 2'000;
  int tenants = 50;
};

const Time kStart{std::chrono::hours(24 * 20000)};

NodeView MakeNode(int index, int devices) {
  NodeView node{.node = fmt::format("node-{}", index)};
  for (int i = 0; i < devices; ++i) {
    node.devices.push_back({fmt::format("cuda:{}", i),
                            "cuda",
                            {fmt::format("pcie:{}", i / 2), fmt::format("socket:{}", i / 4)},
                            true});
  }
  return node;
}

PendingJob MakeJob(int index, const Options& options, std::mt19937& random) {
  const Time submitted = kStart + seconds(index);
  return {.job_id = fmt::format("job-{:07}", index),
          .tenant = fmt::format("tenant-{}", random() % options.tenants),
          .priority = static_cast<int>(random() % 5),
          .submitted = submitted,
          .tensor = 1 << random() % 3,
          .data = static_cast<int>(1 + random() % (random() % 20 == 0 ? 64 : 4)),
          .device_kind = "cuda",
          .max_run = seconds(random() % 4 == 0 ? 0 : 600 + random() % 36'000),
          .waiting_since = submitted};
}

struct Held {
  std::string job_id;
  std::vector<tundish::partitioner::Place> places;
};

class Cluster {
 public:
  explicit Cluster(const Options& options) : options_(options), random_(1) {
    for (int i = 0; i < options.nodes; ++i) {
      nodes_.push_back(MakeNode(i, options.devices));
      scheduler_.PutNode(nodes_.back(), now_);
    }
    for (int i = 0; i < options.queued; ++i) Submit();
  }

  /// Microseconds of each decision.
  std::vector<double> Run() {
    Decide();  // fills the cluster
    std::vector<double> times;
    for (int i = 0; i < options_.decisions; ++i) {
      now_ += seconds(1);
      EndOne();
      while (waiting_ < options_.queued) Submit();
      times.push_back(Decide());
    }
    return times;
  }

  int running() const { return static_cast<int>(running_.size()); }

 private:
  void Submit() {
    scheduler_.PutPending(MakeJob(++jobs_, options_, random_));
    ++waiting_;
  }

  void EndOne() {
    if (running_.empty()) return;
    const size_t index = random_() % running_.size();
    const Held held = running_[index];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    scheduler_.Remove(held.job_id);
    std::vector<int> touched;
    for (const auto& place : held.places) {
      const int node = std::stoi(place.node.substr(5));
      for (NodeDevice& device : nodes_[node].devices) {
        if (device.name == place.device) device.free = true;
      }
      if (std::ranges::find(touched, node) == touched.end()) touched.push_back(node);
    }
    for (const int node : touched) scheduler_.PutNode(nodes_[node], now_);
  }

  double Decide() {
    const auto begin = steady_clock::now();
    Decision decision = scheduler_.Decide(now_);
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
    for (Start& start : decision.starts) {
      for (const auto& place : start.placement.places) {
        for (NodeDevice& device : nodes_[std::stoi(place.node.substr(5))].devices) {
          if (device.name == place.device) device.free = false;
        }
      }
      running_.push_back({start.job_id, std::move(start.placement.places)});
      --waiting_;
    }
    return took.count();
  }

  const Options options_;
  std::mt19937 random_;
  Time now_ = kStart + std::chrono::hours(24);
  Scheduler scheduler_;
  std::vector<NodeView> nodes_;
  std::deque<Held> running_;
  int jobs_ = 0;
  int waiting_ = 0;
};

/// Builds every view anew and asks for a placement among all free devices, once.
double ScanEverything(const Options& options) {
  std::mt19937 random(1);
  std::vector<NodeView> nodes;
  for (int i = 0; i < options.nodes; ++i) nodes.push_back(MakeNode(i, options.devices));
  const auto begin = steady_clock::now();
  std::vector<tundish::partitioner::DeviceView> free;
  for (const NodeView& node : nodes) {
    for (const NodeDevice& device : node.devices) {
      free.push_back({node.node, device.name, device.link_domains});
    }
  }
  const auto placed = tundish::partitioner::Partition(free, 4, 2);
  const std::chrono::duration<double, std::micro> took = steady_clock::now() - begin;
  return placed.ok() ? took.count() : 0;
}

double Quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * values.size()))];
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("How long a scheduling decision takes");
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--devices", options.devices, "Per node")->check(CLI::Range(1, 64));
  app.add_option("--queued", options.queued)->check(CLI::Range(1, 1'000'000));
  app.add_option("--decisions", options.decisions)->check(CLI::Range(10, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  std::vector<double> p50s;
  std::vector<double> p99s;
  std::vector<double> scans;
  for (int repeat = 0; repeat < 5; ++repeat) {
    Cluster cluster(options);
    const std::vector<double> times = cluster.Run();
    p50s.push_back(Quantile(times, 0.5));
    p99s.push_back(Quantile(times, 0.99));
    scans.push_back(ScanEverything(options));
    fmt::print(
        "{} nodes x {} devices, {} queued, {} running: decision p50 {:.0f} us, p99 {:.0f} us, "
        "most {:.0f} us; one scan of all devices {:.0f} us\n",
        options.nodes, options.devices, options.queued, cluster.running(), p50s.back(), p99s.back(),
        Quantile(times, 1), scans.back());
  }
  fmt::print(
      "of five: p50 {:.0f} to {:.0f} us, p99 {:.0f} to {:.0f} us; a scan takes {:.1f} times "
      "the median decision\n",
      Quantile(p50s, 0), Quantile(p50s, 1), Quantile(p99s, 0), Quantile(p99s, 1),
      Quantile(scans, 0.5) / Quantile(p50s, 0.5));
  return 0;
}
