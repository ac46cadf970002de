#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>

#include "tundish/v1/node.pb.h"

namespace tundish::agent {

/// Measures the way from `from` (an IPv4 address of this host) to another agent's LinkListener, as
/// `order` says. Blocks for order.limit_ms at most.
v1::LinkReport MeasureLink(const v1::ProbeLink& order, const std::string& from);

/// Answers MeasureLink of other agents on this host's data address: a byte by a byte, an announced
/// number of bytes by one. Takes few connections, each for a bounded time. Lives on one loop.
class LinkListener {
 public:
  explicit LinkListener(boost::asio::io_context& io);

  /// Listens on `address` and a free port. Errors: Unavailable naming the address.
  absl::Status Start(const std::string& address);
  uint16_t port() const { return port_; }
  void Close();

 private:
  class Session;
  void Accept();

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::shared_ptr<int> sessions_ = std::make_shared<int>(0);
};

/// Carries out ProbeLink orders, one at a time, on a thread of its own.
class LinkProber {
 public:
  using Answer = std::function<void(v1::LinkReport)>;

  /// `answer` is called on `loop`, and not after Close().
  LinkProber(boost::asio::any_io_executor loop, std::string from, Answer answer);
  /// Close().
  ~LinkProber();

  void Probe(v1::ProbeLink order);
  /// Ends the thread after the measurement under way.
  void Close();

 private:
  const boost::asio::any_io_executor loop_;
  const std::string from_;
  const Answer answer_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace tundish::agent
