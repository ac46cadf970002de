#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace tundish::rpc {

/// absl and gRPC share their status codes, so both directions are a cast; message and code survive
/// a round trip. gRPC 1.51 has no conversion of its own.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tundish::rpc
