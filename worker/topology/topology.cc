#include "worker/topology/topology.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

namespace tundish::topology {
namespace {

constexpr int kMostDevices = 1024;
constexpr std::size_t kMostFileBytes = 64 * 1024;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name[0] != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}

absl::Status Wrong(std::string_view origin, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("topology {}: {}", origin, what));
}

absl::Status CheckLevels(const v1::Topology& topology, std::string_view origin) {
  int below = 1;
  std::set<std::string> names;
  for (const v1::LinkLevel& level : topology.levels()) {
    if (!IsName(level.name()) || !names.insert(level.name()).second) {
      return Wrong(origin, fmt::format("level name '{}': expected a name of a-z, 0-9, ., _ and -, "
                                       "each once",
                                       level.name()));
    }
    if (level.devices() < 1 || level.devices() > kMostDevices) {
      return Wrong(origin, fmt::format("level {} has devices={}: expected 1 to {}", level.name(),
                                       level.devices(), kMostDevices));
    }
    if (level.devices() % below != 0) {
      return Wrong(origin, fmt::format("level {} has devices={}: expected a multiple of the level "
                                       "below, {}",
                                       level.name(), level.devices(), below));
    }
    below = level.devices();
  }
  return absl::OkStatus();
}

std::string KnownNames(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") names.insert(entry.path().stem().string());
  }
  if (names.empty()) return fmt::format("{} holds no topologies", folder.string());
  return fmt::format("{} has {}", folder.string(), fmt::join(names, ", "));
}

}  // namespace

absl::StatusOr<v1::Topology> ParseTopology(std::string_view json, std::string_view origin) {
  v1::Topology topology;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(json), &topology);
  if (!parsed.ok()) return Wrong(origin, std::string(parsed.message()));
  if (!IsName(topology.name())) {
    return Wrong(origin, fmt::format("name '{}': expected 1 to 63 of a-z, 0-9, ., _ and -",
                                     topology.name()));
  }
  const std::string& kind = topology.device_kind();
  if (kind != "cpu" && kind != "cuda" && kind != "neuron") {
    return Wrong(origin, fmt::format("device_kind '{}': expected cpu, cuda or neuron", kind));
  }
  if (topology.device_count() < 0 || topology.device_count() > kMostDevices) {
    return Wrong(origin, fmt::format("device_count={}: expected 0 to {}", topology.device_count(),
                                     kMostDevices));
  }
  if (!(topology.device_peak_flops() >= 0)) {
    return Wrong(origin, fmt::format("device_peak_flops={}: expected 0 or more",
                                     topology.device_peak_flops()));
  }
  if (!(topology.measured_efficiency() >= 0 && topology.measured_efficiency() <= 1)) {
    return Wrong(origin, fmt::format("measured_efficiency={}: expected 0 to 1",
                                     topology.measured_efficiency()));
  }
  for (const auto& [key, value] :
       {std::pair("host_dollars_per_hour", topology.host_dollars_per_hour()),
        std::pair("link_bytes_per_second", topology.link_bytes_per_second())}) {
    if (!(value >= 0 && value <= 1e15)) {
      return Wrong(origin, fmt::format("{}={}: expected 0 to 1e15", key, value));
    }
  }
  if (absl::Status levels = CheckLevels(topology, origin); !levels.ok()) return levels;
  return topology;
}

absl::StatusOr<v1::Topology> ReadTopology(const std::filesystem::path& folder,
                                          std::string_view name) {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        fmt::format("topology name '{}': expected 1 to 63 of a-z, 0-9, ., _ and -", name));
  }
  const std::filesystem::path path = folder / fmt::format("{}.json", name);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        fmt::format("topology '{}' cannot be opened: {}", name, KnownNames(folder)));
  }
  std::string text(kMostFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostFileBytes) {
    return Wrong(path.string(), fmt::format("expected at most {} bytes", kMostFileBytes));
  }
  auto topology = ParseTopology(text, path.string());
  if (topology.ok() && topology->name() != name) {
    return Wrong(path.string(),
                 fmt::format("name '{}': expected the file's, '{}'", topology->name(), name));
  }
  return topology;
}

absl::StatusOr<std::vector<v1::Device>> ListDevices(const v1::Topology& topology, int count) {
  const int has = topology.device_count();
  const int most = has > 0 ? has : kMostDevices;
  const int offered = count != 0 ? count : has;
  if (offered < 1 || offered > most) {
    return absl::InvalidArgumentError(
        fmt::format("{} devices of topology {}: expected 1 to {}", offered, topology.name(), most));
  }
  std::vector<v1::Device> devices(offered);
  for (int i = 0; i < offered; ++i) {
    devices[i].set_name(fmt::format("{}:{}", topology.device_kind(), i));
    devices[i].set_kind(topology.device_kind());
    devices[i].set_memory_bytes(topology.device_memory_bytes());
    devices[i].set_peak_flops(topology.device_peak_flops());
    devices[i].set_efficiency(topology.measured_efficiency());
    for (const v1::LinkLevel& level : topology.levels()) {
      devices[i].add_link_domains(fmt::format("{}:{}", level.name(), i / level.devices()));
    }
  }
  return devices;
}

}  // namespace tundish::topology
