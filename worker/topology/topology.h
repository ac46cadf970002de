#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/node.pb.h"
#include "tundish/v1/topology.pb.h"

// What devices a host has and how they are linked, as data (deploy/topologies/*.json). The
// coordinator's tests and the agent both read it, so this target links protobuf only.
namespace tundish::topology {

/// Parses and checks one topology. `origin` names the text in errors. INVALID_ARGUMENT for text
/// that is not JSON, an unknown key, or a level that does not divide the next one.
absl::StatusOr<v1::Topology> ParseTopology(std::string_view json, std::string_view origin);

/// Reads `folder`/`name`.json, at most 64 KiB. NOT_FOUND lists the names that exist; errors of
/// ParseTopology; the file's name must equal the topology's. `name` must be of [a-z0-9._-] (it
/// never leaves the folder).
absl::StatusOr<v1::Topology> ReadTopology(const std::filesystem::path& folder,
                                          std::string_view name);

/// The devices of a host: KIND:0, KIND:1 … with their link domains from the smallest to the
/// largest. `count` devices are offered, the first ones; 0 means all of them. INVALID_ARGUMENT when
/// count is negative, more than the host has, or 0 where the topology does not say how many there
/// are.
absl::StatusOr<std::vector<v1::Device>> ListDevices(const v1::Topology& topology, int count);

}  // namespace tundish::topology
