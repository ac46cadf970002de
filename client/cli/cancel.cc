#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"
#include "client/render/json.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  std::string reason;
  bool json = false;
};

absl::StatusOr<int> Cancel(const std::string& address, const Options& options) {
  v1::CancelJobRequest request;
  request.set_job_id(options.job);
  request.set_reason(options.reason);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::CancelJobResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::CancelJob, request);
  if (!response.ok()) return response.status();
  Print(options.json
            ? ToJson(*response) + "\n"
            : fmt::format("job {} is {}\n", options.job, v1::JobState_Name(response->state())));
  return kSuccess;
}

}  // namespace

void AddCancel(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("cancel", "End a job; an ended one is left as it is");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  command.add_option("--reason", options->reason, "Kept with the job");
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Cancel(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
