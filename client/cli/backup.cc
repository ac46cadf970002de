#include <filesystem>
#include <memory>
#include <unistd.h>

#include <fmt/core.h>

#include "client/cli/artifact_fetch.h"
#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "client/link/coordinator.h"

namespace tundish::client {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string file;
  bool force = false;
};

absl::StatusOr<int> Backup(const std::string& address, const Options& options) {
  std::error_code error;
  if (fs::exists(options.file, error) && !options.force) {
    return absl::AlreadyExistsError(
        fmt::format("{} is there already; name another file or add --force", options.file));
  }
  Coordinator coordinator(address);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const auto reader = coordinator.cluster().Backup(&context, v1::BackupRequest());
  const std::string partial = fmt::format("{}.partial-{}", options.file, getpid());
  absl::StatusOr<FileReceiver> file = FileReceiver::Open(partial, false);
  if (!file.ok()) {
    context.TryCancel();
    reader->Finish();
    return file.status();
  }
  const absl::StatusOr<FetchedFile> fetched =
      Receive<v1::BackupResponse>(coordinator, context, *reader, "backup", *file, UINT64_MAX);
  if (!fetched.ok()) {
    fs::remove(partial, error);
    return fetched.status();
  }
  fs::rename(partial, options.file, error);
  if (error) {
    return absl::FailedPreconditionError(fmt::format("{}: {}", options.file, error.message()));
  }
  Print(fmt::format("{}  {}\n", fetched->sha256, fs::absolute(options.file).string()));
  return kSuccess;
}

}  // namespace

void AddBackup(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "backup",
      "Copy the coordinator's database while it works, and print the copy's SHA-256 and path; to "
      "restore, put it in place of STATE_DIR/tundish.db while tundishd is stopped");
  command.add_option("FILE", options->file, "File to write")->check(CheckNotEmpty)->required();
  command.add_flag("--force", options->force, "Overwrite FILE");
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Backup(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
