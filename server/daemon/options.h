#pragma once

#include <string>

#include <absl/status/status.h>

#include "server/jobs/settings.h"

namespace tundish::daemon {

/// What the command line of tundishd says.
struct Options {
  std::string listen = "127.0.0.1:7400";
  std::string http = "127.0.0.1:7401";
  std::string state_dir;
  /// Empty: `artifacts` in the state folder.
  std::string artifact_root;
  std::string log_level = "info";
  bool insecure = false;
  jobs::Settings settings;
};

/// What ParseOptions made of the command line.
struct ParsedOptions {
  Options options;
  /// Set if the program has to end now (help, version, a usage error): its exit code.
  int exit_code = -1;
};

/// Prints help and usage errors itself; they end with exit code 0 or 2.
ParsedOptions ParseOptions(int argc, char** argv);

/// Refuses an address other hosts reach, since nobody has to prove who he is, unless `insecure`
/// says so. Errors: FailedPrecondition naming the address and the flag.
absl::Status CheckExposure(const std::string& flag, const std::string& address, bool insecure);

}  // namespace tundish::daemon
