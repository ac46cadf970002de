#pragma once

#include <exception>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/status.h>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <grpcpp/grpcpp.h>

#include "runtime/rpc/status.h"

namespace tundish::rpc {

/// Runs `handler` (a callable returning `asio::awaitable<absl::Status>`) on `executor` and finishes
/// the call with its result; an exception becomes INTERNAL, never a crash of gRPC's thread. Request
/// and response live until then: gRPC guarantees it until Finish(). The executor must keep running
/// until the server has been shut down.
template <class Handler>
grpc::ServerUnaryReactor* SpawnUnary(grpc::CallbackServerContext* context,
                                     boost::asio::any_io_executor executor, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  boost::asio::co_spawn(
      executor, std::move(handler), [reactor](std::exception_ptr error, absl::Status status) {
        reactor->Finish(
            error ? grpc::Status(grpc::StatusCode::INTERNAL, "the handler failed unexpectedly")
                  : ToGrpc(status));
      });
  return reactor;
}

}  // namespace tundish::rpc
