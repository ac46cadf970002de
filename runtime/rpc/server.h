#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

namespace tundish::rpc {

struct ServerOptions {
  /// "HOST:PORT" (port 0: any free one) or "unix:PATH".
  std::string address;
  /// Outlive the server.
  std::vector<grpc::Service*> services;
  /// Largest message accepted, bytes; larger ones are refused before they are parsed.
  int max_message_bytes = 16 << 20;
  /// Silence after which a peer is asked for a sign of life, and how long it may take.
  std::chrono::milliseconds keepalive{10'000};
};

/// A gRPC server with reflection and the standard health service. Thread-safe.
class Server {
 public:
  /// Listens on one address only: a port somebody else has is an error, never shared.
  /// Errors: Unavailable naming the address if it cannot be bound; InvalidArgument if it has no
  /// port.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);

  /// Calls Stop() with no grace.
  ~Server();

  /// The port bound; 0 for a Unix socket.
  int port() const { return port_; }

  /// Reports NOT_SERVING by the health service from now on.
  void SetNotServing();

  /// Refuses new calls, gives running ones `grace`, then cancels them; returns when all are over.
  /// Whatever finishes them must keep running meanwhile. Idempotent.
  void Stop(std::chrono::milliseconds grace);

 private:
  Server(std::unique_ptr<grpc::Server> server, int port);

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace tundish::rpc
