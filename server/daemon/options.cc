#include "server/daemon/options.h"

#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace tundish::daemon {
namespace {

void AddMilliseconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                     const std::string& help) {
  app.add_option_function<int>(
         name, [&value](const int& given) { value = std::chrono::milliseconds(given); },
         fmt::format("{} (milliseconds, default {})", help, value.count()))
      ->check(CLI::Range(1, 86'400'000));
}

void AddHours(CLI::App& app, const std::string& name, std::chrono::hours& value,
              const std::string& help) {
  app.add_option_function<int>(
         name, [&value](const int& given) { value = std::chrono::hours(given); },
         fmt::format("{} (hours, default {})", help, value.count()))
      ->check(CLI::Range(1, 1'000'000));
}

/// HOST:PORT or unix:PATH.
std::string CheckAddress(const std::string& address) {
  if (address.starts_with("unix:") && address.size() > 5) return "";
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool number = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (number && colon > 0 && std::stoi(port) <= 65535) return "";
  return fmt::format("'{}' must be HOST:PORT with a port of 0 to 65535", address);
}

}  // namespace

ParsedOptions ParseOptions(int argc, char** argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app{"tundishd: the coordinator of a Tundish cluster"};
  app.set_version_flag("--version", "tundishd " TUNDISH_VERSION);
  app.add_option("--listen", options.listen, "gRPC address, HOST:PORT or unix:PATH")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--http", options.http,
                 "Address of /metrics, /healthz, /readyz and the status page")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--state-dir", options.state_dir, "Folder of the coordinator's durable state")
      ->required();
  app.add_option("--artifact-root", options.artifact_root,
                 "Folder of checkpoints and models, the same on every host (default "
                 "STATE_DIR/artifacts)");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warning or error")
      ->capture_default_str();
  app.add_flag("--insecure", options.insecure,
               "Allow addresses that other hosts reach although there is no authentication");
  jobs::Settings& settings = options.settings;
  AddMilliseconds(app, "--heartbeat-interval", settings.heartbeat_interval, "Asked of agents");
  AddMilliseconds(app, "--unreachable-after", settings.unreachable_after,
                  "Silence after which a node counts as unreachable");
  AddMilliseconds(app, "--lost-after", settings.lost_after,
                  "Silence after which an unreachable node's ranks may be given up");
  AddMilliseconds(app, "--stop-limit", settings.stop_limit,
                  "How long a rank may take to answer a stop before it is killed");
  AddMilliseconds(app, "--start-limit", settings.start_limit,
                  "How long a rank process may take to come up before it is killed");
  AddMilliseconds(app, "--exit-limit", settings.exit_limit,
                  "How long a rank may take to leave before it is killed");
  AddMilliseconds(app, "--restart-grace", settings.restart_grace,
                  "How long agents may take to come back after a restart of tundishd");
  AddHours(app, "--thin-metrics-after", settings.thin_metrics_after,
           "Age at which metric points are thinned out to every tenth step");
  AddHours(app, "--keep-history", settings.keep_history,
           "How long an ended job keeps its metric points and logs");
  AddHours(app, "--keep-jobs", settings.keep_jobs,
           "How long an ended job's record and events are kept");
  app.add_option("--artifact-budget", settings.artifact_budget,
                 "Bytes of checkpoints and models a tenant may keep; 0: any")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--tenant-artifact-budget",
         [&settings](const std::vector<std::string>& pairs) {
           for (const std::string& pair : pairs) {
             const size_t equals = pair.find('=');
             settings.artifact_budgets[pair.substr(0, equals)] = std::stoull(pair.substr(equals + 1));
           }
         },
         "TENANT=BYTES, other than --artifact-budget; may be repeated")
      ->check([](const std::string& pair) -> std::string {
        const size_t equals = pair.find('=');
        const std::string bytes = equals == std::string::npos ? "" : pair.substr(equals + 1);
        const bool number = !bytes.empty() && bytes.size() < 19 &&
                            bytes.find_first_not_of("0123456789") == std::string::npos;
        if (number && equals > 0) return "";
        return fmt::format("'{}' must be TENANT=BYTES", pair);
      });
  app.add_option("--reserve-bytes", settings.reserve_bytes,
                 "Free bytes on the state's disk below which new jobs are refused")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

absl::Status CheckExposure(const std::string& flag, const std::string& address, bool insecure) {
  if (insecure || address.starts_with("unix:") || address.starts_with("127.") ||
      address.starts_with("localhost:") || address.starts_with("[::1]:")) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      fmt::format("{} {}: other hosts could reach it and nobody has to prove who he is; listen on "
                  "127.0.0.1, or "
                  "add --insecure if the network is trusted",
                  flag, address));
}

}  // namespace tundish::daemon
