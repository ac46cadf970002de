#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <grpcpp/channel.h>

#include "tundish/v1/rank.grpc.pb.h"
#include "worker/rank/report_log.h"

namespace tundish::rank {

struct Identity {
  std::string worker_id;
  std::string job_id;
  std::string secret;
  /// Nobody's worker yet: says nothing but Hello until a Become order gives it another identity.
  bool spare = false;
};

/// A channel to the agent's socket ("unix:PATH") that reconnects for ever, waiting a second at most
/// between attempts.
std::shared_ptr<grpc::Channel> OpenAgentChannel(const std::string& address);

/// The rank's end of RankService.Attach. Sends reports, and again after the agent came back, until
/// they are acknowledged; hands orders on. The rank never waits for the agent and never ends
/// because the agent did; only an agent that refuses it ends it. Thread-safe.
class AgentLink {
 public:
  /// Most reports kept while nobody acknowledges: some hours of steps, tens of megabytes.
  static constexpr size_t kMostReports = 50'000;

  /// `on_order` gets all orders but ack and resend, in order, on a thread of gRPC's; it must not
  /// block. `on_refused` is called, once and on a thread of the link's, when the agent does not
  /// know this rank or its secret: no later attempt would help, and the link makes none. It must
  /// not Close. Nothing happens before Start.
  AgentLink(std::shared_ptr<grpc::Channel> channel, Identity identity,
            std::function<void(const v1::RankOrder&)> on_order,
            std::function<void(const std::string& error)> on_refused,
            size_t most_reports = kMostReports);
  ~AgentLink();  // Closes.
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  void Start();

  /// The one in force: that of the last Become order.
  Identity identity() const;

  /// Queues a report (a spare's is dropped); worker, job and number are filled in here. Never
  /// blocks on the network.
  void Report(v1::RankReport report);

  /// Ends the attachment. No order is handed on afterwards. Not from `on_order`.
  void Close();

 private:
  class Attachment;

  void Supervise();
  void HandleOrder(const v1::RankOrder& order);
  v1::RankReport MakeHello() const;

  const std::unique_ptr<v1::RankService::Stub> stub_;
  const std::function<void(const v1::RankOrder&)> on_order_;
  const std::function<void(const std::string&)> on_refused_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Identity identity_;
  ReportLog log_;
  std::unique_ptr<Attachment> attachment_;
  bool closing_ = false;
  bool said_given_up_ = false;

  std::thread supervisor_;
};

}  // namespace tundish::rank
