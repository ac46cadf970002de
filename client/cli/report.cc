#include <algorithm>
#include <map>
#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/link/follow.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  bool json = false;
};

/// The metric points of one pass over the data.
struct PassSummary {
  uint32_t steps = 0;
  double first_loss = 0, last_loss = 0, sum_loss = 0;
  double sum_images_per_second = 0;
  double slowest_step_seconds = 0;
  double last_learning_rate = 0;

  void Add(const v1::MetricPoint& point) {
    if (steps++ == 0) first_loss = point.loss();
    last_loss = point.loss();
    sum_loss += point.loss();
    sum_images_per_second += point.images_per_second();
    slowest_step_seconds = std::max(slowest_step_seconds, point.step_seconds());
    last_learning_rate = point.learning_rate();
  }
};

struct History {
  std::map<uint32_t, PassSummary> passes;
  std::vector<v1::Evaluation> evaluations;
};

std::string HistoryText(const History& history) {
  using Align = Table::Align;
  std::string text;
  if (!history.passes.empty()) {
    Table table({"data epoch", "steps", "first loss", "mean loss", "last loss", "learning rate",
                 "images/s", "slowest step"},
                std::vector<Align>(8, Align::kRight));
    for (const auto& [data_epoch, pass] : history.passes) {
      table.AddRow({fmt::format("{}", data_epoch), fmt::format("{}", pass.steps),
                    fmt::format("{:.4f}", pass.first_loss),
                    fmt::format("{:.4f}", pass.sum_loss / pass.steps),
                    fmt::format("{:.4f}", pass.last_loss),
                    fmt::format("{:.2e}", pass.last_learning_rate),
                    fmt::format("{:.1f}", pass.sum_images_per_second / pass.steps),
                    Duration(pass.slowest_step_seconds)});
    }
    text += "training\n" + table.ToString(2);
  }
  if (!history.evaluations.empty()) {
    Table table({"after step", "data epoch", "loss", "accuracy", "balanced accuracy"},
                std::vector<Align>(5, Align::kRight));
    for (const v1::Evaluation& evaluation : history.evaluations) {
      table.AddRow({fmt::format("{}", evaluation.step()),
                    fmt::format("{}", evaluation.data_epoch()),
                    fmt::format("{:.4f}", evaluation.loss()), Percent(evaluation.accuracy()),
                    Percent(evaluation.balanced_accuracy())});
    }
    text += "evaluations\n" + table.ToString(2);
  }
  return text;
}

absl::StatusOr<History> ReadHistory(Coordinator& coordinator, const std::string& job_id) {
  History history;
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  request.set_without_logs(true);
  request.set_replay_only(true);
  const absl::StatusOr<v1::JobState> state =
      FollowJob(coordinator, request,
                {.update =
                     [&](const v1::JobUpdate& update) {
                       if (update.has_metric()) {
                         history.passes[update.metric().data_epoch()].Add(update.metric());
                       } else if (update.has_event() && update.event().has_evaluation()) {
                         history.evaluations.push_back(update.event().evaluation());
                       }
                     },
                 .notice = PrintNotice});
  if (!state.ok()) return state.status();
  return history;
}

absl::StatusOr<int> Report(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  if (options.json) {
    Print(ToJson(*job) + "\n");
    return kSuccess;
  }
  const absl::StatusOr<History> history = ReadHistory(coordinator, job->job_id());
  if (!history.ok()) return history.status();
  Print(DescribeText(*job) + HistoryText(*history));
  return kSuccess;
}

}  // namespace

void AddReport(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "report", "Print what a job did as text: curves by data epoch, evaluations, incidents");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Report(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
