#include "runtime/http/server.h"

#include <fcntl.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/http/host_check.h"
#include "runtime/http/session.h"

namespace tundish::http {

namespace asio = boost::asio;
using boost::system::error_code;

/// Accepts connections and knows the open ones.
class Server::Listener : public std::enable_shared_from_this<Server::Listener> {
 public:
  Listener(asio::io_context& io, std::shared_ptr<const Site> site)
      : acceptor_(io), pause_(io), site_(std::move(site)) {}

  absl::Status Open(const asio::ip::tcp::endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // Asio 1.74 opens without CLOEXEC, and a child that inherits the port keeps it.
    if (!error) fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("cannot listen on {}: {}; stop the other process or choose another address",
                    site_->options.address, error.message()));
  }

  uint16_t port() const {
    error_code error;
    return acceptor_.local_endpoint(error).port();
  }

  void Accept() {
    if (closed_ || accepting_ || sessions_.size() >= site_->options.max_connections) return;
    accepting_ = true;
    acceptor_.async_accept([self = shared_from_this()](error_code error, asio::ip::tcp::socket s) {
      self->accepting_ = false;
      self->OnAccept(error, std::move(s));
    });
  }

  void Close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (const auto& [id, weak] : std::exchange(sessions_, {})) {
      if (const auto session = weak.lock()) session->Close();
    }
  }

 private:
  void OnAccept(error_code error, asio::ip::tcp::socket socket) {
    if (closed_) return;
    if (error) {
      // Usually out of descriptors: trying again at once would spin.
      spdlog::warn("event=http_accept_failed address={} error=\"{}\"", site_->options.address,
                   error.message());
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait([self = shared_from_this()](error_code cancelled) {
        if (!cancelled) self->Accept();
      });
      return;
    }
    fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    const uint64_t id = next_id_++;
    auto session =
        std::make_shared<Session>(std::move(socket), site_, [weak = weak_from_this(), id] {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->sessions_.erase(id);
          self->Accept();
        });
    sessions_[id] = session;
    session->Start();
    Accept();
  }

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::shared_ptr<const Site> site_;
  std::map<uint64_t, std::weak_ptr<Session>> sessions_;
  uint64_t next_id_ = 0;
  bool accepting_ = false;
  bool closed_ = false;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(asio::io_context& io, ServerOptions options,
                                                      std::map<std::string, Handler> handlers) {
  const auto endpoint = ParseEndpoint(options.address);
  if (!endpoint.ok()) return endpoint.status();
  auto site = std::make_shared<Site>();
  site->options = std::move(options);
  site->handlers = std::move(handlers);
  site->loopback = endpoint->address().is_loopback();
  auto listener = std::make_shared<Listener>(io, std::move(site));
  if (absl::Status opened = listener->Open(*endpoint); !opened.ok()) return opened;
  listener->Accept();
  return std::unique_ptr<Server>(new Server(std::move(listener)));
}

Server::Server(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}

Server::~Server() {
  Close();
}

uint16_t Server::port() const {
  return listener_->port();
}

void Server::Close() {
  listener_->Close();
}

}  // namespace tundish::http
