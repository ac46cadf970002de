#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"
#include "client/render/json.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  bool json = false;
};

absl::StatusOr<int> Explain(const std::string& address, const Options& options) {
  v1::ExplainJobRequest request;
  request.set_job_id(options.job);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::ExplainJobResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::ExplainJob, request);
  if (!response.ok()) return response.status();
  Print(options.json
            ? ToJson(*response) + "\n"
            : fmt::format("{}: {}\n", v1::JobState_Name(response->state()), response->text()));
  return kSuccess;
}

}  // namespace

void AddExplain(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command =
      *app.add_subcommand("explain", "Say why a job waits, or where it runs and why there");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Explain(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
