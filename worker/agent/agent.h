#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/statusor.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "runtime/http/server.h"
#include "runtime/metrics/metrics.h"
#include "runtime/rpc/server.h"
#include "tundish/v1/node.grpc.pb.h"
#include "worker/agent/coordinator_link.h"
#include "worker/agent/data_checks.h"
#include "worker/agent/file_reader.h"
#include "worker/agent/link_probe.h"
#include "worker/agent/options.h"
#include "worker/agent/rank_service.h"
#include "worker/agent/state_dir.h"
#include "worker/agent/workers.h"

namespace tundish::agent {

/// One host's agent: offers devices to the coordinator, runs ranks on them, and stands between the
/// two. All state is on one event loop, whose thread the agent owns.
class Agent {
 public:
  /// Starts everything: adopts recorded ranks, listens for ranks and for HTTP, connects.
  /// Errors: InvalidArgument for options that cannot be right, FailedPrecondition for a state
  /// directory in use, Unavailable for an address in use; each names the value. Internal if it
  /// cannot be told whether a rank of an earlier agent still runs.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(Options options);

  /// Stop() must have returned.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  uint16_t http_port() const { return http_->port(); }

  /// Ends the agent. With `stop_ranks` kills its ranks first and tells the coordinator; else they
  /// go on, for the next agent to adopt. Blocks until everything has ended. Once, not on the loop.
  void Stop(bool stop_ranks);

 private:
  Agent(Options options, Host host, std::unique_ptr<StateDir> state);

  absl::Status Listen();
  void OnMessage(const v1::CoordinatorMessage& message);
  void OnReport(v1::RankReport report);
  v1::Register Registration() const;
  http::Response ServeMetrics();
  /// Runs `step` on the loop and returns when it has called its argument.
  void RunToEnd(std::function<void(std::function<void()>)> step);

  const Options options_;
  const Host host_;
  const std::unique_ptr<StateDir> state_;
  metrics::Metrics metrics_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  const std::unique_ptr<v1::NodeService::Stub> stub_;
  // On the loop.
  Workers workers_;
  DataChecks checks_;
  CoordinatorLink link_;
  FileReader files_;
  LinkListener link_listener_;
  LinkProber link_prober_;
  bool reports_refused_ = false;

  RankService service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<http::Server> http_;
  std::thread loop_;
};

}  // namespace tundish::agent
