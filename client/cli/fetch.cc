#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include <fmt/core.h>

#include "client/cli/artifact_fetch.h"
#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "client/cli/follow_display.h"

namespace tundish::client {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string job;
  std::string path;
  std::string output;
  bool force = false;
};

/// Whether waiting for the coordinator may help.
bool IsInterruption(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status);
}

/// Goes on after interruptions for as long as every attempt brings bytes or a minute is not over.
absl::StatusOr<FetchedFile> FetchAll(Coordinator& coordinator, const Options& options,
                                     const std::string& partial) {
  constexpr std::chrono::seconds kPatience{60};
  auto give_up = std::chrono::system_clock::now() + kPatience;
  std::error_code error;
  for (bool said = false;;) {
    const uint64_t before = fs::exists(partial, error) ? fs::file_size(partial, error) : 0;
    const absl::StatusOr<FetchedFile> fetched =
        ResumeArtifact(coordinator, options.job, options.path, partial);
    if (fetched.ok()) return fetched;
    // A longer file than there is, or another content: what an earlier call left is of no use.
    if (absl::IsOutOfRange(fetched.status()) || absl::IsDataLoss(fetched.status())) {
      fs::remove(partial, error);
      if (before == 0) return fetched;
      PrintNotice(fmt::format("{}; beginning anew", std::string(fetched.status().message())));
      continue;
    }
    if (!IsInterruption(fetched.status())) return fetched;
    const auto now = std::chrono::system_clock::now();
    if (fs::file_size(partial, error) > before) give_up = now + kPatience;
    if (now >= give_up) return fetched;
    if (!std::exchange(said, true)) PrintNotice(std::string(fetched.status().message()));
    if (!coordinator.channel().WaitForConnected(give_up)) return fetched;
    // It listens but cannot serve: the delay spares it.
    coordinator.channel().WaitForStateChange(GRPC_CHANNEL_READY, now + std::chrono::seconds(1));
  }
}

absl::StatusOr<int> Fetch(const std::string& address, const Options& options) {
  std::error_code error;
  if (fs::exists(options.output, error) && !options.force) {
    return absl::AlreadyExistsError(
        fmt::format("{} is there already; name another file or add --force", options.output));
  }
  Coordinator coordinator(address);
  const std::string partial = options.output + ".partial";
  const absl::StatusOr<FetchedFile> fetched = FetchAll(coordinator, options, partial);
  if (!fetched.ok()) {
    if (fs::is_empty(partial, error)) fs::remove(partial, error);
    return fetched.status();
  }
  fs::rename(partial, options.output, error);
  if (error) {
    return absl::FailedPreconditionError(fmt::format("{}: {}", options.output, error.message()));
  }
  Print(fmt::format("{}  {}\n", fetched->sha256, fs::absolute(options.output).string()));
  return kSuccess;
}

}  // namespace

void AddFetch(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "fetch",
      "Fetch a file of a job and print its SHA-256 and path; an interrupted fetch goes on where it "
      "stopped (OUTPUT.partial)");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  command.add_option("PATH", options->path, "As `tundish artifacts` lists it")->required();
  command.add_option("--output", options->output, "File to write")
      ->check(CheckNotEmpty)
      ->required();
  command.add_flag("--force", options->force, "Overwrite OUTPUT");
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Fetch(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
