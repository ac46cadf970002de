#include <memory>

#include "client/cli/command.h"
#include "client/cli/follow_display.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  uint32_t after_seq = 0;
  bool json = false;
};

absl::StatusOr<int> Watch(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  // Turns a prefix into the id, and finds out now whether anybody listens.
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  return ShowJob(coordinator, job->job_id(), options.after_seq, options.json);
}

}  // namespace

void AddWatch(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("watch", "Show a job's updates until it ends");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  command.add_option("--after-seq", options->after_seq, "Only updates behind this number");
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Watch(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
