#include "runtime/rpc/server.h"

#include <grpc/support/log.h>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

namespace tundish::rpc {
namespace {

/// gRPC's own log lines, among ours and in our form; its errors are repeated by the calls that
/// fail.
void LogForGrpc(gpr_log_func_args* args) {
  spdlog::debug("event=grpc_log file={} line={} text=\"{}\"", args->file, args->line,
                args->message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  const bool unix_socket = options.address.starts_with("unix:");
  if (!unix_socket && options.address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("address '{}' has no port; write HOST:PORT", options.address));
  }
  gpr_set_log_function(LogForGrpc);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  // gRPC would share the port with another process by SO_REUSEPORT, and half the calls would go
  // there.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const int keepalive_ms = static_cast<int>(options.keepalive.count());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  int port = 0;
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (port == 0 && !unix_socket)) {
    return absl::UnavailableError(fmt::format(
        "cannot listen on {}: the address is in use or not of this host; stop the other "
        "process or choose another address",
        options.address));
  }
  return std::unique_ptr<Server>(new Server(std::move(server), unix_socket ? 0 : port));
}

Server::Server(std::unique_ptr<grpc::Server> server, int port)
    : server_(std::move(server)), port_(port) {}

Server::~Server() {
  Stop(std::chrono::milliseconds(0));
}

void Server::SetNotServing() {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
}

void Server::Stop(std::chrono::milliseconds grace) {
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
}

}  // namespace tundish::rpc
