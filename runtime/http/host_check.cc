#include "runtime/http/host_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

namespace tundish::http {

namespace asio = boost::asio;

absl::StatusOr<asio::ip::tcp::endpoint> ParseEndpoint(std::string_view address) {
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        fmt::format("address '{}' {}; write HOST:PORT, for example 127.0.0.1:7401 or [::1]:7401",
                    address, why));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  const std::string_view port_text = address.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size()) {
    return wrong("has no port between 0 and 65535");
  }
  std::string_view host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  boost::system::error_code not_an_address;
  const auto ip = asio::ip::make_address(std::string(host), not_an_address);
  if (not_an_address || bracketed != ip.is_v6()) return wrong("does not start with an IP address");
  return asio::ip::tcp::endpoint(ip, port);
}

std::string HostOf(std::string_view value) {
  if (const size_t scheme = value.find("://"); scheme != std::string_view::npos) {
    value.remove_prefix(scheme + 3);
  }
  if (value.starts_with('[')) {
    value = value.substr(1, value.find(']') - 1);
  } else {
    value = value.substr(0, value.find(':'));
  }
  std::string host(value);
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return host;
}

bool IsLoopbackHost(std::string_view host_header, std::span<const std::string> allowed) {
  const std::string host = HostOf(host_header);
  if (host == "localhost" || std::ranges::find(allowed, host) != allowed.end()) return true;
  boost::system::error_code not_an_address;
  const auto ip = asio::ip::make_address(host, not_an_address);
  return !not_an_address && ip.is_loopback();
}

}  // namespace tundish::http
