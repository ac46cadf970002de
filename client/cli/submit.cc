#include <chrono>
#include <memory>

#include <fmt/core.h>

#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/cli/job_file.h"
#include "client/render/json.h"
#include "runtime/base/ulid.h"

namespace tundish::client {
namespace {

struct Options {
  std::string file;
  std::string request_id;
  bool follow = false;
  bool json = false;
};

absl::StatusOr<int> Submit(const std::string& address, const Options& options) {
  v1::SubmitJobRequest request;
  if (absl::Status read = LoadJobFile(options.file, request.mutable_spec()); !read.ok()) {
    return read;
  }
  request.set_request_id(options.request_id.empty() ? NewUlid(std::chrono::system_clock::now())
                                                    : options.request_id);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::SubmitJobResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::SubmitJob, request);
  if (response.status().code() == absl::StatusCode::kInvalidArgument) {
    // The coordinator does not know where the spec came from.
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", options.file, std::string(response.status().message())));
  }
  if (!response.ok()) return response.status();
  if (options.json) {
    Print(ToJson(*response) + "\n");
  } else {
    Print(fmt::format("job {} {}\n", response->job_id(),
                      response->existing() ? "was submitted before" : "submitted"));
  }
  if (!options.follow) return kSuccess;
  v1::WatchJobRequest watch;
  watch.set_job_id(response->job_id());
  return ShowJob(coordinator, watch, options.json);
}

}  // namespace

void AddSubmit(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("submit", "Submit a job file (YAML or JSON)");
  command.add_option("FILE", options->file, "Job file; docs/job-spec.md lists the keys")
      ->required();
  command
      .add_option("--request-id", options->request_id,
                  "Makes the submission safe to repeat: the same id and spec answer with the "
                  "same job (default: a new id)")
      ->check(CheckNotEmpty);
  command.add_flag("--follow", options->follow, "Show the job until it ends");
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Submit(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
