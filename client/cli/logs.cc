#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/link/follow.h"
#include "client/render/json.h"
#include "client/render/progress.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  std::optional<int> rank;
  bool follow = false;
  bool json = false;
};

absl::StatusOr<int> Logs(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  const int tensor = std::max(1, job->spec().parallel().tensor());
  const int ranks = tensor * std::max(1, job->spec().parallel().data());
  if (options.rank && *options.rank >= ranks) {
    return absl::InvalidArgumentError(fmt::format(
        "--rank {}: the job has ranks 0 to {} (dp x {} + tp)", *options.rank, ranks - 1, tensor));
  }
  const auto wanted = [&](const v1::JobUpdate& update) {
    // What the filter left out is not missing; what a slow reader lost is.
    if (update.has_dropped()) return update.dropped().reason() != "filter";
    return update.has_log() &&
           (!options.rank || (update.log().dp() >= 0 &&
                              update.log().dp() * tensor + update.log().tp() == *options.rank));
  };
  v1::WatchJobRequest request;
  request.set_job_id(job->job_id());
  request.set_without_metrics(true);
  // Following ends with the terminal event.
  request.set_without_events(!options.follow);
  request.set_replay_only(!options.follow);
  const absl::StatusOr<v1::JobState> state =
      FollowJob(coordinator, request,
                {.update =
                     [&](const v1::JobUpdate& update) {
                       if (!wanted(update)) return;
                       Print((options.json ? ToJson(update) : UpdateLine(update)) + "\n");
                     },
                 .notice = PrintNotice});
  if (!state.ok()) return state.status();
  return kSuccess;
}

}  // namespace

void AddLogs(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("logs", "Show what a job's ranks logged");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  command.add_option("--rank", options->rank, "Only this rank: dp x tensor + tp")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--follow", options->follow, "Go on until the job ends");
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Logs(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
