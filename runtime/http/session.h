#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "runtime/http/server.h"

namespace tundish::http {

/// What all connections of a server share; lives as long as any of them.
struct Site {
  ServerOptions options;
  std::map<std::string, Handler> handlers;
  bool loopback = true;
};

/// The answer to one request: checks method, Host and Origin, then asks the handler.
boost::beast::http::response<boost::beast::http::string_body> Answer(
    const Site& site, const boost::beast::http::request<boost::beast::http::empty_body>& request);

/// One connection: reads a request, answers, repeats until the client closes, is too slow, or
/// Close(). Keeps itself alive by the operation in flight.
class Session : public std::enable_shared_from_this<Session> {
 public:
  /// `on_end` runs once, when the connection is over.
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<const Site> site,
          std::function<void()> on_end);
  ~Session();

  void Start();
  void Close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
  using Reply = boost::beast::http::response<boost::beast::http::string_body>;

  void Read();
  void OnRequest(boost::beast::error_code error);
  void Write(Reply reply);

  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<const Site> site_;
  std::function<void()> on_end_;
  std::optional<Parser> parser_;  // A new one per request.
  Reply reply_;
  bool closed_ = false;
};

}  // namespace tundish::http
