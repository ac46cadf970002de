#include "worker/agent/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/ip/address_v4.hpp>
#include <fmt/format.h>

#include "tundish/v1/topology.pb.h"
#include "worker/topology/host_memory.h"
#include "worker/topology/topology.h"

namespace tundish::agent {

absl::StatusOr<Host> DescribeHost(const std::string& devices, const std::string& topology_file) {
  const size_t colon = devices.find(':');
  const std::string kind = devices.substr(0, colon);
  int count = 0;
  if (colon != std::string::npos) {
    const char* end = devices.data() + devices.size();
    const auto [stop, error] = std::from_chars(devices.data() + colon + 1, end, count);
    if (error != std::errc() || stop != end) count = 0;
  }
  const bool known = kind == "cpu" || kind == "cuda" || kind == "neuron";
  if (!known || count < 1 || count > 1024) {
    return absl::InvalidArgumentError(fmt::format(
        "--devices '{}' is not KIND:COUNT with KIND cpu, cuda or neuron and COUNT 1 to 1024, for "
        "example cpu:4",
        devices));
  }
  Host host;
  v1::Topology topology;
  topology.set_name("host");
  topology.set_device_kind(kind);
  if (!topology_file.empty()) {
    const std::filesystem::path path = std::filesystem::absolute(topology_file);
    auto read = topology::ReadTopology(path.parent_path(), path.stem().string());
    if (!read.ok()) return read.status();
    topology = *std::move(read);
    host.topology = topology.name();
    if (topology.device_kind() != kind) {
      return absl::InvalidArgumentError(
          fmt::format("--devices '{}' does not fit topology '{}', whose devices are '{}'", devices,
                      topology.name(), topology.device_kind()));
    }
  }
  auto listed = topology::ListDevices(topology, count);
  if (!listed.ok()) return listed.status();
  host.devices = *std::move(listed);
  if (kind == "cpu") {
    // CPU devices share the host's memory evenly, unless the topology says what each has.
    const uint64_t each = topology::HostMemoryBytes() / host.devices.size();
    for (v1::Device& device : host.devices) {
      if (device.memory_bytes() == 0) device.set_memory_bytes(each);
    }
  }
  return host;
}

absl::Status CheckDevicesExist(const Host& host, const std::filesystem::path& dev) {
  const std::string kind = host.devices.empty() ? "cpu" : host.devices[0].kind();
  if (kind == "cpu") return absl::OkStatus();
  const std::string prefix = kind == "cuda" ? "nvidia" : "neuron";
  const auto is_device = [&prefix](const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename();
    return name.size() > prefix.size() && name.starts_with(prefix) &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  std::error_code unreadable;
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dev, unreadable)) {
    found += is_device(entry) ? 1 : 0;
  }
  // A Neuron device has several cores, each of which is offered as one.
  const size_t needed = kind == "cuda" ? host.devices.size() : 1;
  if (found >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("--devices offers {} devices of kind {}, this host has {} ({}/{}*); offer what "
                  "there is, or say --assume-devices to try placement only",
                  host.devices.size(), kind, found, dev.string(), prefix));
}

absl::Status CheckOptions(const Options& options) {
  const bool named = !options.node.empty() && options.node.size() <= 63 &&
                     std::ranges::all_of(options.node, [](unsigned char c) {
                       return std::islower(c) || std::isdigit(c) || c == '.' || c == '-';
                     });
  if (!named) {
    return absl::InvalidArgumentError(
        fmt::format("--node '{}' is not 1 to 63 of [a-z0-9.-]", options.node));
  }
  boost::system::error_code wrong;
  boost::asio::ip::make_address_v4(options.data_address, wrong);
  if (wrong) {
    return absl::InvalidArgumentError(fmt::format(
        "--data-address '{}' is not an IPv4 address, for example 127.0.0.1", options.data_address));
  }
  return absl::OkStatus();
}

}  // namespace tundish::agent
