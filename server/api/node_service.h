#pragma once

#include <filesystem>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <grpcpp/grpcpp.h>

#include "server/jobs/core.h"
#include "server/store/store.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::api {

/// NodeService over the core: agents' streams and their ranks' rendezvous calls. Thread-safe.
class NodeService : public v1::NodeService::CallbackService {
 public:
  /// `loop` is the core's. The core outlives every call: the server stops first.
  NodeService(boost::asio::any_io_executor loop, jobs::Core& core);

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* RendezvousStore(grpc::CallbackServerContext* context,
                                            const v1::StoreRequest* request,
                                            v1::StoreReply* response) override;

 private:
  boost::asio::any_io_executor loop_;
  jobs::Core& core_;  // Outlives every call.
};

/// ClusterService over the core. Thread-safe.
class ClusterService : public v1::ClusterService::CallbackService {
 public:
  /// As NodeService. `store` is the core's; `scratch` a folder on a disk with room for a copy of
  /// it.
  ClusterService(boost::asio::any_io_executor loop, jobs::Core& core, store::Store& store,
                 std::filesystem::path scratch);
  /// Waits for backups in progress.
  ~ClusterService() override;

  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override;
  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(grpc::CallbackServerContext* context,
                                                       const v1::BackupRequest* request) override;

 private:
  boost::asio::any_io_executor loop_;
  jobs::Core& core_;     // Outlives every call.
  store::Store& store_;  // As core_.
  const std::filesystem::path scratch_;
  boost::asio::thread_pool disk_;
};

}  // namespace tundish::api
