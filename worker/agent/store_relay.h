#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "tundish/v1/node.grpc.pb.h"
#include "tundish/v1/rank.pb.h"

namespace tundish::agent {

/// One rendezvous store call of a rank on its way to the coordinator. The caller's deadline and
/// cancellation go along. While the coordinator cannot be reached the call waits for it, up to its
/// deadline; an add whose fate is unknown is not repeated (it would count twice) but fails with
/// UNAVAILABLE. Every answer of the coordinator, ABORTED above all, is passed on unchanged.
///
/// Lives until the call is over; runs on the event loop.
class StoreRelay : public grpc::ServerUnaryReactor {
 public:
  /// What the call is about; pointers live until the call is over.
  struct Call {
    v1::NodeService::StubInterface* stub;
    std::chrono::system_clock::time_point deadline;
    const v1::StoreRequest* request;
    v1::StoreReply* reply;
    /// On the event loop, before anything else: whether the call is let through.
    std::function<absl::Status()> admit;
  };

  static StoreRelay* Start(boost::asio::io_context& io, Call call);

  void OnCancel() override;
  void OnDone() override;

 private:
  StoreRelay(boost::asio::io_context& io, Call call);

  void Admit();
  void Attempt();
  void OnAnswer(const grpc::Status& status);

  boost::asio::io_context& io_;
  const Call call_;
  boost::asio::steady_timer retry_;
  std::shared_ptr<StoreRelay> self_;  // Until OnDone, which gRPC calls exactly once.
  // On the loop only.
  std::unique_ptr<grpc::ClientContext> context_;
  bool cancelled_ = false;
};

/// The deadline of a relayed call: the caller's, and never later than the operation can need.
std::chrono::system_clock::time_point StoreDeadline(std::chrono::system_clock::time_point now,
                                                    std::chrono::system_clock::time_point callers,
                                                    const v1::StoreRequest& request);

}  // namespace tundish::agent
