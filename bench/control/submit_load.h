#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "tundish/v1/job_service.grpc.pb.h"

namespace tundish::bench {

/// A valid job that no agent has to run for the bench.
v1::JobSpec SmallSpec(uint64_t seed);

/// Channels of their own connection, quick to come back after the coordinator was killed.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address);

/// Many clients that submit jobs as fast as they are answered, and repeat a call whose answer did
/// not come. Thread-safe.
class SubmitLoad {
 public:
  struct Options {
    std::string address;
    int clients = 64;
    /// Calls per request_id, by different clients at the same time.
    int copies = 1;
  };
  struct Result {
    /// request_id → job_id of every acknowledged submission.
    std::map<std::string, std::string> jobs;
    std::vector<double> latency_ms;
    uint64_t answers = 0;
    uint64_t repeats = 0;
    double seconds = 0;
    /// What must never happen, one sentence each.
    std::vector<std::string> violations;
  };

  explicit SubmitLoad(Options options);
  ~SubmitLoad();

  void Start();
  /// Returns once `count` more submissions were answered.
  void AwaitAnswers(uint64_t count);
  /// Lets every client finish the call it is in, then returns what all of them saw. Once.
  Result Finish();

 private:
  struct Client;
  void Next(Client& client);
  void Call(Client& client);
  void OnAnswer(Client& client, const grpc::Status& status);

  const Options options_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::chrono::steady_clock::time_point began_;
  std::atomic<uint64_t> next_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int running_ = 0;
  Result result_;
};

}  // namespace tundish::bench
