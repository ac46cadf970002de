#pragma once

#include <chrono>
#include <string>

#include <absl/status/status.h>

namespace tundish::client {

/// OK if a server could listen on `address` ("HOST:PORT") now.
/// Errors: FailedPrecondition naming the address and `flag`: in use, not this host's, port 0 or
/// none.
absl::Status CheckCanListen(const std::string& address, const std::string& flag);

/// Status code of `GET path` from the HTTP server at `address`; 0 if it does not answer within
/// `limit`.
int HttpStatus(const std::string& address, const std::string& path,
               std::chrono::milliseconds limit);

}  // namespace tundish::client
