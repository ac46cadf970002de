#include <memory>

#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/render/job_text.h"
#include "client/render/json.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  bool json = false;
};

absl::StatusOr<int> Describe(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  Print(options.json ? ToJson(*job) + "\n" : DescribeText(*job));
  return kSuccess;
}

}  // namespace

void AddDescribe(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("describe", "Show everything known of a job");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Describe(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
