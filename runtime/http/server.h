#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

// A small HTTP/1.1 server for the pages of a daemon: metrics, health, status. GET and HEAD only, no
// bodies, plain text: it listens on loopback unless an operator says otherwise.
namespace tundish::http {

struct Request {
  /// Path without the query, as sent (not percent-decoded), e.g. "/metrics".
  std::string_view path;
  /// What follows the first '?'; empty if nothing does.
  std::string_view query;
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Answers a request, on the server's executor; must not block. HEAD is GET without the body.
using Handler = std::function<Response(const Request&)>;

struct ServerOptions {
  /// "HOST:PORT", HOST an IP address ("[::1]" for IPv6) or "localhost"; port 0: any free one.
  std::string address;
  /// Host names, besides IP addresses of loopback and "localhost", that requests may be addressed
  /// to.
  std::vector<std::string> allowed_hosts;
  /// Request line and headers, bytes; more is answered with 431.
  size_t max_header_bytes = 8 << 10;
  /// How long a request may take to arrive or a response to leave, and an idle connection is kept.
  std::chrono::milliseconds timeout{10'000};
  /// Connections beyond this number wait in the kernel's queue.
  size_t max_connections = 64;
};

/// Everything, the handlers included, runs on one single-threaded io_context, which outlives the
/// server; its methods are called there or while it does not run.
///
/// A browser can be led to this port by a foreign page (DNS rebinding), so a listener on loopback
/// answers 421 to a Host that is neither loopback nor allowed; every listener answers 403 to an
/// Origin that is not its own.
class Server {
 public:
  /// Listens and serves `handlers`, one per exact path; any other path is 404.
  /// Errors: InvalidArgument for an address that cannot be read, Unavailable naming the address if
  /// it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(boost::asio::io_context& io,
                                                       ServerOptions options,
                                                       std::map<std::string, Handler> handlers);

  /// Calls Close().
  ~Server();

  /// The port bound.
  uint16_t port() const;

  /// Stops listening and drops every connection; no handler runs afterwards. Idempotent.
  void Close();

 private:
  class Listener;

  explicit Server(std::shared_ptr<Listener> listener);

  std::shared_ptr<Listener> listener_;  // Shared with the operations in flight.
};

}  // namespace tundish::http
