#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/link/coordinator.h"
#include "client/link/follow_all.h"
#include "client/render/json.h"
#include "client/render/progress.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  bool all = false;
  bool from_now = false;
  std::string tenant;
  uint32_t after_seq = 0;
  std::vector<uint32_t> ranks;
  std::vector<std::string> only;
  double minimum_interval_seconds = 0;
  bool json = false;
};

bool LeftOut(const Options& options, const std::string& kind) {
  return !options.only.empty() &&
         std::find(options.only.begin(), options.only.end(), kind) == options.only.end();
}

/// What both requests have.
template <class Request>
void SetFilter(const Options& options, Request& request) {
  request.set_without_events(LeftOut(options, "events"));
  request.set_without_metrics(LeftOut(options, "metrics"));
  request.set_without_logs(LeftOut(options, "logs"));
  request.set_minimum_interval_ms(
      static_cast<uint32_t>(std::lround(options.minimum_interval_seconds * 1000)));
}

absl::StatusOr<int> WatchOne(Coordinator& coordinator, const Options& options) {
  // Turns a prefix into the id, and finds out now whether anybody listens.
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  v1::WatchJobRequest request;
  request.set_job_id(job->job_id());
  request.set_after_seq(options.after_seq);
  for (const uint32_t rank : options.ranks) request.add_ranks(rank);
  SetFilter(options, request);
  return ShowJob(coordinator, request, options.json);
}

absl::StatusOr<int> WatchEvery(Coordinator& coordinator, const Options& options) {
  v1::WatchAllRequest request;
  request.set_from_now(options.from_now);
  request.set_tenant(options.tenant);
  SetFilter(options, request);
  return FollowAll(coordinator, request,
                   {.update =
                        [&options](const std::string& job_id, const v1::JobUpdate& update) {
                          if (!options.json) {
                            return Print(fmt::format("{} {}\n", job_id, UpdateLine(update)));
                          }
                          v1::WatchedJob line;
                          line.set_job_id(job_id);
                          *line.add_updates() = update;
                          Print(ToJson(line) + "\n");
                        },
                    .notice = PrintNotice});
}

absl::StatusOr<int> Watch(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  if (options.all == options.job.empty()) {
    return options.all ? WatchEvery(coordinator, options) : WatchOne(coordinator, options);
  }
  PrintNotice("JOB is required, or --all instead of it; see `tundish watch --help`");
  return kUsage;
}

}  // namespace

void AddWatch(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("watch", "Show a job's updates until it ends");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters");
  command.add_option("--after-seq", options->after_seq, "Only updates behind this number");
  command.add_option("--rank", options->ranks,
                     "Only these ranks' logs and times: dp x tensor + tp; may be repeated");
  command.add_option("--only", options->only, "Kinds to show: events, metrics, logs")
      ->delimiter(',')
      ->check(CLI::IsMember({"events", "metrics", "logs"}));
  command
      .add_option("--min-interval", options->minimum_interval_seconds,
                  "Seconds between two metric points at least")
      ->check(CLI::Range(0.0, 86'400.0));
  CLI::Option* all = command.add_flag("--all", options->all, "Every job, until interrupted");
  command.add_flag("--from-now", options->from_now, "With --all: nothing that happened before")
      ->needs(all);
  command.add_option("--tenant", options->tenant, "With --all: only this tenant's jobs")
      ->needs(all);
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Watch(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
