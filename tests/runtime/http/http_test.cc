#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/http/host_check.h"
#include "runtime/http/server.h"

namespace tundish::http {
namespace {

namespace asio = boost::asio;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ParseEndpointTest, TakesAddressesAndNamesTheFormWanted) {
  struct Case {
    const char* text;
    const char* want;  // Empty: an error.
  };
  const Case cases[] = {
      {"127.0.0.1:7401", "127.0.0.1:7401"},
      {"localhost:0", "127.0.0.1:0"},
      {"[::1]:80", "[::1]:80"},
      {"0.0.0.0:65535", "0.0.0.0:65535"},
      {"127.0.0.1", ""},
      {"127.0.0.1:", ""},
      {"127.0.0.1:65536", ""},
      {"127.0.0.1:80x", ""},
      {"::1:80", ""},
      {"[127.0.0.1]:80", ""},
      {"example.com:80", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto got = ParseEndpoint(c.text);
    ASSERT_EQ(got.ok(), *c.want != '\0') << got.status();
    if (got.ok()) {
      std::ostringstream text;
      text << *got;
      EXPECT_EQ(text.str(), c.want);
    } else {
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("write HOST:PORT"));
    }
  }
}

TEST(IsLoopbackHostTest, RefusesNamesThatForeignPagesUse) {
  const std::string allowed[] = {"trainer.lan"};
  for (const char* host : {"localhost", "LocalHost:7401", "127.0.0.1:80", "127.8.9.1", "[::1]:80",
                           "trainer.lan:7401"}) {
    EXPECT_TRUE(IsLoopbackHost(host, allowed)) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "10.0.0.1",
                           "127.0.0.1.nip", "[2001:db8::1]", "["}) {
    EXPECT_FALSE(IsLoopbackHost(host, allowed)) << host;
  }
}

/// A server on a free port, its loop on a thread of its own.
class HttpTest : public testing::Test {
 protected:
  void Start(ServerOptions options) {
    options.address = "127.0.0.1:0";
    auto server = Server::Start(
        io_, options,
        {{"/metrics",
          [](const Request& r) { return Response{.body = "q=" + std::string(r.query)}; }},
         {"/broken", [](const Request&) { return Response{.status = 503, .body = "no\n"}; }}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_.run(); });
  }

  void TearDown() override {
    asio::post(io_, [this] { server_.reset(); });
    if (thread_.joinable()) thread_.join();
  }

  asio::ip::tcp::socket Connect() {
    asio::ip::tcp::socket socket(client_io_);
    socket.connect({asio::ip::address_v4::loopback(), server_->port()});
    return socket;
  }

  /// Sends `text` and returns everything until the server closes.
  std::string Exchange(const std::string& text) {
    auto socket = Connect();
    boost::system::error_code error;
    asio::write(socket, asio::buffer(text), error);
    std::string answer;
    asio::read(socket, asio::dynamic_buffer(answer), error);
    return answer;
  }

  std::string Get(const std::string& target, const std::string& headers = "Host: localhost\r\n") {
    return Exchange(fmt::format("GET {} HTTP/1.1\r\n{}Connection: close\r\n\r\n", target, headers));
  }

  asio::io_context io_;
  asio::io_context client_io_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(HttpTest, AnswersByPath) {
  Start({});
  const std::string page = Get("/metrics?name=x&y");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(page, EndsWith("\r\n\r\nq=name=x&y"));
  EXPECT_THAT(Get("/broken"), StartsWith("HTTP/1.1 503 "));
  const std::string missing = Get("/other");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(missing, EndsWith("no such page; there are /broken /metrics\n"));
}

TEST_F(HttpTest, HeadHasTheLengthButNoBody) {
  Start({});
  const std::string page =
      Exchange("HEAD /broken HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(page, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(page, EndsWith("\r\n\r\n"));
}

TEST_F(HttpTest, KeepsAConnection) {
  Start({});
  const std::string pages = Exchange(
      "GET /metrics?1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
      "GET /metrics?2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(pages, HasSubstr("q=1HTTP/1.1 200"));
  EXPECT_THAT(pages, EndsWith("q=2"));
}

TEST_F(HttpTest, RefusesWhatItShould) {
  Start({.max_header_bytes = 1024, .timeout = std::chrono::milliseconds(200)});
  EXPECT_THAT(Get("/metrics", ""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/metrics", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(Get("/metrics", "Host: localhost\r\nOrigin: http://evil.example\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Get("/metrics", "Host: localhost\r\nOrigin: http://localhost:80\r\n"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/metrics", "Host: localhost\r\nX: " + std::string(2000, 'x') + "\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Exchange("POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       "Content-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Exchange("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n123"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Exchange("\x16\x03\x01 hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpTest, DropsASilentClientAndServesTheNext) {
  Start({.timeout = std::chrono::milliseconds(100), .max_connections = 1});
  EXPECT_EQ(Exchange("GET /metr"), "");  // Returns when the server closes.
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, CloseDropsConnections) {
  Start({});
  auto socket = Connect();
  asio::write(socket,
              asio::buffer(std::string("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")));
  std::string first(8, '\0');
  asio::read(socket, asio::buffer(first));  // The connection is known to be accepted.
  asio::post(io_, [this] { server_->Close(); });
  std::string rest;
  boost::system::error_code error;
  asio::read(socket, asio::dynamic_buffer(rest), error);
  EXPECT_TRUE(error);
}

TEST_F(HttpTest, NamesAnAddressThatIsTaken) {
  Start({});
  const std::string address = fmt::format("127.0.0.1:{}", server_->port());
  asio::io_context other;
  const auto second = Server::Start(other, {.address = address}, {});
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace tundish::http
