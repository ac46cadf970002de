#include "server/jobs/retention.h"

namespace tundish::jobs {
namespace {

constexpr std::chrono::minutes kBetweenWalks{10};
constexpr std::chrono::hours kThinAgain{1};

}  // namespace

std::optional<RetentionTask> Retention::NextOf(const Job& job, Now now, const Settings& settings) {
  Mark& mark = marks_[job.id()];
  const bool over = job.ended() && job.members.empty();
  const auto ended = FromTimestamp(job.record.finished());
  if (over && ended + settings.keep_jobs <= now.wall) {
    return RetentionTask{
        .kind = RetentionTask::Kind::kRemove, .job_id = job.id(), .decided = now.wall};
  }
  if (over && ended + settings.keep_history <= now.wall) {
    if (mark.stripped) return std::nullopt;
    return RetentionTask{.kind = RetentionTask::Kind::kStrip,
                         .job_id = job.id(),
                         .decided = now.wall,
                         .prune = {.job_id = job.id(),
                                   .before = now.wall,
                                   .keep_logs = false,
                                   .reason = "retention",
                                   .after_seq = mark.stripped_through}};
  }
  const auto old = now.wall - settings.thin_metrics_after;
  if (FromTimestamp(job.record.submitted()) >= old || mark.thin_again > now.wall) {
    return std::nullopt;
  }
  return RetentionTask{.kind = RetentionTask::Kind::kThin,
                       .job_id = job.id(),
                       .decided = now.wall,
                       .prune = {.job_id = job.id(),
                                 .before = old,
                                 .keep_every_step = settings.keep_every_step,
                                 .reason = "down_sampling",
                                 .after_seq = mark.thinned_through}};
}

std::optional<RetentionTask> Retention::Next(const Jobs& jobs, Now now, const Settings& settings) {
  if (now.wall < next_walk_) return std::nullopt;
  for (auto entry = jobs.lower_bound(next_job_); entry != jobs.end(); ++entry) {
    if (auto task = NextOf(*entry->second, now, settings)) {
      next_job_ = entry->first;
      return task;
    }
  }
  next_job_.clear();
  next_walk_ = now.wall + kBetweenWalks;
  return std::nullopt;
}

void Retention::OnPruned(const RetentionTask& task, const store::PruneResult& result) {
  Mark& mark = marks_[task.job_id];
  if (task.kind == RetentionTask::Kind::kThin) {
    mark.thinned_through = result.through_seq;
    if (result.done) mark.thin_again = task.decided + kThinAgain;
  } else {
    mark.stripped_through = result.through_seq;
    mark.stripped = result.done;
  }
}

void Retention::OnRemoved(const std::string& job_id) {
  marks_.erase(job_id);
}

}  // namespace tundish::jobs
