#include "worker/agent/link_probe.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

namespace tundish::agent {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// The first byte of a request. kPing is answered at once; kBulk is followed by eight bytes, the
// number of bytes to come, lowest first, and answered after the last of them.
constexpr char kPing = 'p';
constexpr char kBulk = 'b';
constexpr uint64_t kMostBytes = 64 << 20;
constexpr int kPings = 5;
constexpr int kMostSessions = 16;
constexpr std::chrono::seconds kSessionLimit{60};

/// A connection with a deadline for everything.
class Probe {
 public:
  explicit Probe(Clock::time_point deadline) : deadline_(deadline) {}
  ~Probe() {
    if (socket_ >= 0) close(socket_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Each returns false and sets error() when it fails.
  bool Connect(const std::string& from, const std::string& to, uint16_t port) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in local{};
    sockaddr_in remote{};
    local.sin_family = remote.sin_family = AF_INET;
    remote.sin_port = htons(port);
    if (socket_ < 0) return Fail("socket", errno);
    if (inet_pton(AF_INET, to.c_str(), &remote.sin_addr) != 1) return Fail("address", EINVAL);
    if (inet_pton(AF_INET, from.c_str(), &local.sin_addr) != 1) return Fail("address", EINVAL);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&local), sizeof local) != 0) {
      return Fail("bind", errno);
    }
    if (connect(socket_, reinterpret_cast<sockaddr*>(&remote), sizeof remote) == 0) return true;
    if (errno != EINPROGRESS) return Fail("connect", errno);
    if (!Await(POLLOUT, "connect")) return false;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 || Fail("connect", error);
  }

  bool Send(const char* data, size_t size) {
    for (size_t done = 0; done < size;) {
      if (!Await(POLLOUT, "send")) return false;
      const ssize_t sent = send(socket_, data + done, size - done, MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return Fail("send", errno);
      if (sent > 0) done += static_cast<size_t>(sent);
    }
    return true;
  }

  bool ReceiveByte() {
    char byte = 0;
    for (;;) {
      if (!Await(POLLIN, "receive")) return false;
      const ssize_t got = recv(socket_, &byte, 1, 0);
      if (got == 1) return true;
      if (got == 0) return Fail("receive", ECONNRESET);
      if (errno != EAGAIN && errno != EINTR) return Fail("receive", errno);
    }
  }

  const std::string& error() const { return error_; }

 private:
  bool Await(short events, const char* doing) {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd wanted{.fd = socket_, .events = events, .revents = 0};
      const int ready = left.count() <= 0 ? 0 : poll(&wanted, 1, static_cast<int>(left.count()));
      if (ready > 0) return true;
      if (ready == 0) return Fail(doing, ETIMEDOUT);
      if (errno != EINTR) return Fail(doing, errno);
    }
  }

  bool Fail(const char* doing, int error) {
    error_ = fmt::format("{}: {}", doing, std::generic_category().message(error));
    return false;
  }

  const Clock::time_point deadline_;
  int socket_ = -1;
  std::string error_;
};

bool MeasureRoundTrip(Probe& probe, v1::LinkReport& report) {
  double best = -1;
  for (int i = 0; i < kPings; ++i) {
    const auto began = Clock::now();
    if (!probe.Send(&kPing, 1) || !probe.ReceiveByte()) return false;
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
    best = best < 0 ? took : std::min(best, took);
  }
  report.set_round_trip_ms(best);
  return true;
}

bool MeasureRate(Probe& probe, uint64_t bytes, v1::LinkReport& report) {
  char header[9] = {kBulk};
  for (int i = 0; i < 8; ++i) header[1 + i] = static_cast<char>(bytes >> (8 * i));
  const std::vector<char> block(64 << 10);
  const auto began = Clock::now();
  if (!probe.Send(header, sizeof header)) return false;
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(left, block.size());
    if (!probe.Send(block.data(), part)) return false;
    left -= part;
  }
  if (!probe.ReceiveByte()) return false;
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  report.set_bytes_per_second(static_cast<double>(bytes) / std::max(seconds, 1e-9));
  return true;
}

}  // namespace

v1::LinkReport MeasureLink(const v1::ProbeLink& order, const std::string& from) {
  v1::LinkReport report;
  report.set_probe_id(order.probe_id());
  report.set_node(order.node());
  const uint32_t limit_ms = std::clamp(order.limit_ms(), 1u, 60'000u);
  if (order.bytes() > kMostBytes || order.port() == 0 || order.port() > 65535) {
    report.set_error(
        fmt::format("{} bytes to port {} cannot be measured: at most {} bytes, ports 1 "
                    "to 65535",
                    order.bytes(), order.port(), kMostBytes));
    return report;
  }
  Probe probe(Clock::now() + std::chrono::milliseconds(limit_ms));
  const bool measured = probe.Connect(from, order.address(), static_cast<uint16_t>(order.port())) &&
                        MeasureRoundTrip(probe, report) &&
                        (order.bytes() == 0 || MeasureRate(probe, order.bytes(), report));
  if (!measured) report.set_error(probe.error());
  return report;
}

/// One connection; kept alive by its handlers.
class LinkListener::Session : public std::enable_shared_from_this<LinkListener::Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<int> count)
      : socket_(std::move(socket)), limit_(socket_.get_executor()), count_(std::move(count)) {
    ++*count_;
  }
  ~Session() { --*count_; }

  void Start() {
    limit_.expires_after(kSessionLimit);
    limit_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
      if (const auto self = weak.lock(); self && !cancelled) self->socket_.close();
    });
    ReadRequest();
  }

 private:
  void ReadRequest() {
    asio::async_read(socket_, asio::buffer(block_, 1),
                     [self = shared_from_this()](boost::system::error_code error, size_t) {
                       if (error) return;
                       if (self->block_[0] == kPing) return self->Confirm();
                       if (self->block_[0] == kBulk) return self->ReadLength();
                     });
  }

  void ReadLength() {
    asio::async_read(socket_, asio::buffer(block_, 8),
                     [self = shared_from_this()](boost::system::error_code error, size_t) {
                       if (error) return;
                       self->left_ = 0;
                       for (int i = 0; i < 8; ++i) {
                         self->left_ |= uint64_t{static_cast<unsigned char>(self->block_[i])}
                                        << (8 * i);
                       }
                       if (self->left_ <= kMostBytes) self->Discard();
                     });
  }

  void Discard() {
    if (left_ == 0) return Confirm();
    socket_.async_read_some(
        asio::buffer(block_, std::min<uint64_t>(left_, block_.size())),
        [self = shared_from_this()](boost::system::error_code error, size_t got) {
          if (error) return;
          self->left_ -= got;
          self->Discard();
        });
  }

  void Confirm() {
    asio::async_write(socket_, asio::buffer(block_, 1),
                      [self = shared_from_this()](boost::system::error_code error, size_t) {
                        if (!error) self->ReadRequest();
                      });
  }

  tcp::socket socket_;
  asio::steady_timer limit_;
  std::shared_ptr<int> count_;
  std::vector<char> block_ = std::vector<char>(64 << 10);
  uint64_t left_ = 0;
};

LinkListener::LinkListener(asio::io_context& io) : io_(io), acceptor_(io) {}

absl::Status LinkListener::Start(const std::string& address) {
  boost::system::error_code error;
  const tcp::endpoint endpoint(asio::ip::make_address_v4(address, error), 0);
  if (!error) acceptor_.open(tcp::v4(), error);
  // Asio of this age leaves descriptors to children.
  if (!error) fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(kMostSessions, error);
  if (error) {
    return absl::UnavailableError(fmt::format(
        "--data-address {}: cannot listen there: {}; it must be an address of this host", address,
        error.message()));
  }
  port_ = acceptor_.local_endpoint().port();
  Accept();
  return absl::OkStatus();
}

void LinkListener::Accept() {
  acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && *sessions_ < kMostSessions) {
      fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
      boost::system::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      std::make_shared<Session>(std::move(socket), sessions_)->Start();
    }
    Accept();
  });
}

void LinkListener::Close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

LinkProber::LinkProber(asio::any_io_executor loop, std::string from, Answer answer)
    : loop_(std::move(loop)), from_(std::move(from)), answer_(std::move(answer)) {}

LinkProber::~LinkProber() {
  Close();
}

void LinkProber::Probe(v1::ProbeLink order) {
  asio::post(thread_, [this, order = std::move(order)] {
    asio::post(loop_, [this, report = MeasureLink(order, from_)] { answer_(report); });
  });
}

void LinkProber::Close() {
  thread_.stop();
  thread_.join();
}

}  // namespace tundish::agent
