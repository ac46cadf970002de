#pragma once

#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/io_context.hpp>
#include <grpcpp/grpcpp.h>

#include "tundish/v1/node.grpc.pb.h"
#include "tundish/v1/rank.grpc.pb.h"
#include "worker/agent/workers.h"

namespace tundish::agent {

/// What ranks call, over the Unix socket. Checks who calls; passes reports to `on_report` and store
/// calls to the coordinator. gRPC's threads only post to the event loop.
class RankService : public v1::RankService::CallbackService {
 public:
  struct Callbacks {
    /// On the event loop; never a Hello.
    std::function<void(v1::RankReport)> on_report;
    /// On the event loop, one per call.
    std::function<void()> on_store_call;
  };

  /// All outlive the server the service is registered with.
  RankService(boost::asio::io_context& io, Workers& workers, v1::NodeService::StubInterface& stub,
              Callbacks callbacks);

  grpc::ServerBidiReactor<v1::RankReport, v1::RankOrder>* Attach(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* RendezvousStore(grpc::CallbackServerContext* context,
                                            const v1::StoreRequest* request,
                                            v1::StoreReply* reply) override;

 private:
  struct Attachment;

  void OnMessage(Attachment& attachment, v1::RankReport report);

  boost::asio::io_context& io_;
  Workers& workers_;
  v1::NodeService::StubInterface& stub_;
  Callbacks callbacks_;
};

}  // namespace tundish::agent
