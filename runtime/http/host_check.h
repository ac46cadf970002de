#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/statusor.h>
#include <boost/asio/ip/tcp.hpp>

namespace tundish::http {

/// Reads "HOST:PORT"; HOST is an IP address, in brackets if IPv6, or "localhost" (127.0.0.1).
/// Errors: InvalidArgument naming the text and the form wanted.
absl::StatusOr<boost::asio::ip::tcp::endpoint> ParseEndpoint(std::string_view address);

/// The host of a Host header or of an Origin: without scheme, port and brackets, in lower case.
std::string HostOf(std::string_view value);

/// True if `host_header` names this machine's loopback or is one of `allowed`.
bool IsLoopbackHost(std::string_view host_header, std::span<const std::string> allowed);

}  // namespace tundish::http
