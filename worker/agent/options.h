#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/node.pb.h"

namespace tundish::agent {

/// What the command line says.
struct Options {
  /// HOST:PORT of the coordinator's gRPC listener.
  std::string coordinator = "127.0.0.1:7400";
  /// Unique in the cluster.
  std::string node;
  /// KIND:COUNT, e.g. "cpu:4".
  std::string devices;
  /// Path of a topology file; empty: devices without link domains.
  std::string topology_file;
  std::filesystem::path state_dir;
  std::string rank_binary;
  std::string http_address = "127.0.0.1:7402";
  std::string data_address = "127.0.0.1";
  std::chrono::milliseconds check_limit{std::chrono::minutes(30)};
  /// Program and arguments of the data check.
  std::vector<std::string> check_command;
  std::string log_level = "info";
  /// Offer devices without looking for them: to try placement of machines one does not have.
  bool assume_devices = false;
};

/// What Register says of the host's hardware.
struct Host {
  std::vector<v1::Device> devices;
  /// Name of the topology; empty for none.
  std::string topology;
};

/// Reads `devices` ("KIND:COUNT") and, unless it is empty, `topology_file`.
/// Errors: InvalidArgument naming the text and the form wanted, or a kind that is not the
/// topology's; those of topology::ReadTopology and ListDevices.
absl::StatusOr<Host> DescribeHost(const std::string& devices, const std::string& topology_file);

/// OK if the host has the devices it would offer: GPUs and Neuron devices have a file each in
/// `dev`. A device that is not there fails every rank on it. Errors: FailedPrecondition that says
/// how many there are.
absl::Status CheckDevicesExist(const Host& host, const std::filesystem::path& dev = "/dev");

/// Checks what only needs looking at: node name (1 to 63 of [a-z0-9.-]), data address (IPv4).
absl::Status CheckOptions(const Options& options);

}  // namespace tundish::agent
