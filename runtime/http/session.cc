#include "runtime/http/session.h"

#include <utility>

#include <fmt/format.h>

#include "runtime/http/host_check.h"

namespace tundish::http {

namespace beast = boost::beast;
namespace {

using Reply = beast::http::response<beast::http::string_body>;

std::string_view View(beast::string_view text) {
  return {text.data(), text.size()};
}

Reply MakeReply(Response response, unsigned version, bool keep_alive, bool head) {
  Reply reply;
  reply.version(version);
  reply.result(static_cast<unsigned>(response.status));
  reply.set(beast::http::field::content_type, response.content_type);
  reply.set(beast::http::field::cache_control, "no-store");
  reply.set("X-Content-Type-Options", "nosniff");
  reply.keep_alive(keep_alive);
  reply.content_length(response.body.size());
  if (!head) reply.body() = std::move(response.body);
  return reply;
}

Response Refusal(int status, std::string text) {
  return {.status = status, .body = std::move(text) + "\n"};
}

Response Decide(const Site& site, const beast::http::request<beast::http::empty_body>& request) {
  const std::string_view host = View(request[beast::http::field::host]);
  if (host.empty()) return Refusal(400, "the request has no Host");
  if (site.loopback && !IsLoopbackHost(host, site.options.allowed_hosts)) {
    return Refusal(421, fmt::format("this server is not '{}'; use localhost", HostOf(host)));
  }
  const std::string_view origin = View(request[beast::http::field::origin]);
  if (!origin.empty() && HostOf(origin) != HostOf(host)) {
    return Refusal(403, "requests of other sites' pages are refused");
  }
  if (request.method() != beast::http::verb::get && request.method() != beast::http::verb::head) {
    return Refusal(405, "only GET and HEAD are served");
  }
  const std::string_view target = View(request.target());
  const size_t mark = target.find('?');
  const Request asked{.path = target.substr(0, mark),
                      .query = mark == std::string_view::npos ? "" : target.substr(mark + 1)};
  const auto handler = site.handlers.find(std::string(asked.path));
  if (handler == site.handlers.end()) {
    std::string known;
    for (const auto& [path, unused] : site.handlers) known += " " + path;
    return Refusal(404, "no such page; there are" + known);
  }
  return handler->second(asked);
}

}  // namespace

Reply Answer(const Site& site, const beast::http::request<beast::http::empty_body>& request) {
  Reply reply = MakeReply(Decide(site, request), request.version(), request.keep_alive(),
                          request.method() == beast::http::verb::head);
  if (reply.result_int() == 405) reply.set(beast::http::field::allow, "GET, HEAD");
  return reply;
}

Session::Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<const Site> site,
                 std::function<void()> on_end)
    : stream_(std::move(socket)), site_(std::move(site)), on_end_(std::move(on_end)) {}

Session::~Session() {
  if (on_end_) on_end_();
}

void Session::Start() {
  Read();
}

void Session::Close() {
  closed_ = true;
  on_end_ = nullptr;
  stream_.close();
}

void Session::Read() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(site_->options.max_header_bytes));
  parser_->body_limit(0);
  stream_.expires_after(site_->options.timeout);
  beast::http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) { self->OnRequest(error); });
}

void Session::OnRequest(beast::error_code error) {
  if (closed_) return;
  if (error == beast::http::error::header_limit) {
    return Write(MakeReply(Refusal(431, "the request's headers are too long"), 11, false, false));
  }
  if (error == beast::http::error::body_limit || error == beast::http::error::unexpected_body) {
    return Write(MakeReply(Refusal(413, "requests have no body"), 11, false, false));
  }
  if (error.category() == make_error_code(beast::http::error::bad_method).category() &&
      error != beast::http::error::end_of_stream && error != beast::http::error::partial_message) {
    return Write(MakeReply(Refusal(400, "not an HTTP request"), 11, false, false));
  }
  if (error) return;  // Closed, reset or too slow: nobody is left to answer.
  Write(Answer(*site_, parser_->get()));
}

void Session::Write(Reply reply) {
  reply_ = std::move(reply);
  stream_.expires_after(site_->options.timeout);
  beast::http::async_write(
      stream_, reply_, [self = shared_from_this()](beast::error_code error, size_t) {
        if (self->closed_ || error) return;
        if (self->reply_.keep_alive()) return self->Read();
        beast::error_code ignored;  // The client may have closed already.
        self->stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
      });
}

}  // namespace tundish::http
