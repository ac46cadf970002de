#include "client/local/network.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <fmt/core.h>

namespace tundish::client {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Socket addresses of "HOST:PORT" or "[IPv6]:PORT"; null if there are none.
Addresses Resolve(const std::string& address, int flags) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {nullptr, freeaddrinfo};
  std::string host = address.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = address.substr(colon + 1);
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return {nullptr, freeaddrinfo};
  return {found, freeaddrinfo};
}

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : fd_(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::Status CheckCanListen(const std::string& address, const std::string& flag) {
  const auto refused = [&](std::string_view why) {
    return absl::FailedPreconditionError(fmt::format("{} {}: {}", flag, address, why));
  };
  const Addresses addresses = Resolve(address, AI_PASSIVE);
  if (addresses == nullptr || address.ends_with(":0")) {
    return refused("expected HOST:PORT of this host with a port from 1 to 65535");
  }
  const Socket probe(*addresses);
  // As servers do: connections of a former server that linger are no obstacle.
  const int on = 1;
  setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(probe.fd(), addresses->ai_addr, addresses->ai_addrlen) == 0) return absl::OkStatus();
  if (errno == EADDRINUSE) {
    return refused(
        fmt::format("the port is in use; stop what listens there or choose another with "
                    "{} HOST:PORT",
                    flag));
  }
  return refused(std::strerror(errno));
}

int HttpStatus(const std::string& address, const std::string& path,
               std::chrono::milliseconds limit) {
  const Addresses addresses = Resolve(address, 0);
  if (addresses == nullptr) return 0;
  const Socket connection(*addresses);
  const timeval patience{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  // SO_SNDTIMEO bounds connect() too.
  setsockopt(connection.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(connection.fd(), addresses->ai_addr, addresses->ai_addrlen) != 0) return 0;
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address);
  if (send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return 0;
  }
  char status_line[64] = {};
  const ssize_t got = recv(connection.fd(), status_line, sizeof("HTTP/1.1 200") - 1, MSG_WAITALL);
  int status = 0;
  if (got <= 0 || std::sscanf(status_line, "HTTP/1.%*d %d", &status) != 1) return 0;
  return status;
}

}  // namespace tundish::client
