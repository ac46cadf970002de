#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tundish/v1/node.grpc.pb.h"
#include "worker/agent/coordinator_link.h"

namespace tundish::bench {

/// Agents without hosts: each keeps a stream of its own connection by the real agent's code
/// (heartbeats, back-off, repetition), offers devices, passes every data check, and has ranks that
/// come up at once and take steps at a given rate. All live on one thread.
class SimAgents {
 public:
  struct Options {
    std::string address;
    int count = 1;
    int devices = 1;
    std::string name = "sim";
    /// Steps per second of every rank; 0: none.
    double steps_per_second = 0;
    /// Number of steps after which ranks report no more.
    uint32_t steps = 0;
  };

  explicit SimAgents(Options options);
  /// Stop().
  ~SimAgents();

  void Start();
  /// Closes every stream and ends the thread.
  void Stop();

  /// Agents whose registration was answered on their present stream.
  int connected() const { return connected_; }
  /// Returns when `count` are connected, or false after `limit`.
  bool AwaitConnected(int count, std::chrono::milliseconds limit);
  uint64_t lost_streams() const { return lost_; }

  /// When the last rank's report of a step was handed to the stream; step → time. Valid after Stop.
  const std::vector<std::chrono::steady_clock::time_point>& step_times() const { return times_; }

 private:
  struct Rank {
    std::string worker_id;
    std::string job_id;
    uint32_t job_epoch = 0;
    int dp = 0;
    int tp = 0;
    uint64_t number = 0;
    bool formed = false;
  };
  struct Agent {
    std::string name;
    std::unique_ptr<v1::NodeService::Stub> stub;
    std::unique_ptr<agent::CoordinatorLink> link;
    std::map<std::string, Rank> ranks;
    bool connected = false;
  };

  void OnMessage(Agent& agent, const v1::CoordinatorMessage& message);
  void OnOrder(Agent& agent, Rank& rank, const v1::RankOrder& order);
  void Report(Agent& agent, Rank& rank, v1::RankReport report);
  void ArmStep();
  void Step();

  const Options options_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer step_timer_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<std::chrono::steady_clock::time_point> times_;
  std::atomic<int> connected_ = 0;
  std::atomic<uint64_t> lost_ = 0;
  std::thread thread_;
};

}  // namespace tundish::bench
