#include "server/jobs/lifecycle.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/ulid.h"
#include "server/jobs/arrangement.h"
#include "server/jobs/checkpoints.h"
#include "server/jobs/elastic.h"
#include "server/jobs/metric_points.h"
#include "server/jobs/parking.h"
#include "server/spec/resolve.h"

namespace tundish::jobs {

std::unique_ptr<Job> NewJob(const std::string& request_id, const v1::JobSpec& resolved,
                            Context& context) {
  auto job = std::make_unique<Job>();
  job->record.set_job_id(NewUlid(context.now.wall));
  job->record.set_request_id(request_id);
  *job->record.mutable_spec() = resolved;
  *job->record.mutable_submitted() = ToTimestamp(context.now.wall);
  job->record.set_artifact_root(context.settings.artifact_root);
  job->record.set_total_steps(resolved.training().steps());
  job->progress.set_job_id(job->id());
  SetState(*job, v1::PENDING, "submitted", "waiting for its data check", context.now,
           context.changes);
  return job;
}

v1::CoordinatorMessage CheckOrder(const Job& job) {
  v1::CoordinatorMessage message;
  v1::RunTask* task = message.mutable_run_task();
  task->set_task_id(job.check.task_id);
  task->set_job_id(job.id());
  *task->mutable_check_data() = job.spec();
  return message;
}

void OnDataChecked(Job& job, const v1::TaskResult& result, Context& context) {
  if (job.ended() || job.check.done || job.check.task_id != result.task_id()) return;
  job.check = {.done = true};
  absl::StatusOr<uint32_t> total_steps =
      result.error().empty()
          ? spec::TotalSteps(job.spec(), result.data_report().train_images())
          : absl::StatusOr<uint32_t>(absl::FailedPreconditionError(result.error()));
  if (!total_steps.ok()) {
    EndJob(job, v1::FAILED, "data_check_failed", std::string(total_steps.status().message()),
           context);
    return;
  }
  *job.record.mutable_data_report() = result.data_report();
  job.record.set_total_steps(*total_steps);
  job.record.set_message("waiting for devices");
  context.changes.TouchJob(job);
  context.changes.schedule = true;
  const v1::DataReport& report = job.record.data_report();
  v1::JobEvent event;
  event.set_type("data_checked");
  event.set_reason("data_readable");
  event.set_message(
      fmt::format("{} images to train on, {} to validate, {} classes, {} files left out; {} steps",
                  report.train_images(), report.validation_images(), report.classes_size(),
                  report.bad_file_count(), *total_steps));
  Emit(job, std::move(event), context.now, context.changes);
}

namespace {

/// The job ends here: nothing may be published after its last event.
void Close(Job& job, v1::JobState state, const std::string& reason, const std::string& message,
           Context& context) {
  *job.record.mutable_finished() = ToTimestamp(context.now.wall);
  job.wait_reason.clear();
  if (!job.check.task_id.empty()) {
    v1::CoordinatorMessage cancel;
    cancel.mutable_cancel_task()->set_task_id(job.check.task_id);
    context.changes.Send(job.check.node, std::move(cancel));
    job.check = {};
  }
  job.progress_limit = std::chrono::steady_clock::time_point::max();
  job.stage = Stage::kEnded;
  job.steps.clear();
  job.shards.clear();
  job.progress.clear_parking();
  JoinersAsMembers(job);
  SetState(job, state, reason, message, context.now, context.changes);
  context.changes.TouchProgress(job);
  context.rendezvous.Close(job.id());
  context.changes.schedule = true;
}

}  // namespace

void EndJob(Job& job, v1::JobState state, const std::string& reason, const std::string& message,
            Context& context) {
  if (job.ended()) return;
  Close(job, state, reason, message, context);
  for (Member& member : job.members) {
    if (!member.missing) continue;  // nobody is left to be killed
    context.nodes.Free(member.node, member.worker_id);
    member.phase = MemberPhase::kGone;
  }
  std::erase_if(job.members, [](const Member& member) { return !member.alive(); });
  for (Member& member : job.members) KillMember(job, member, "job_ended", context);
  if (job.members.empty() && job.record.job_epoch() > 0) SweepCheckpoints(job, context);
}

void MaybeSucceed(Job& job, Context& context) {
  const bool all_finished = std::ranges::all_of(
      job.members, [](const Member& member) { return member.phase == MemberPhase::kFinished; });
  if (!all_finished || job.stage != Stage::kTraining) return;
  MaybeRunning(job, context);
  job.covered = job.record.total_steps();  // who has finished has committed everything
  PublishPoints(job, context);
  Close(job, v1::SUCCEEDED, "all_ranks_finished",
        fmt::format("{} steps on {} ranks", job.progress.step(), job.members.size()), context);
  for (Member& member : job.members) {
    if (member.phase == MemberPhase::kStarting) {  // it was to join
      KillMember(job, member, "job_ended", context);
      continue;
    }
    member.limit = context.now.steady + context.settings.exit_limit;
    context.changes.Send(member.node, ExitOrder(job, member));
  }
}

void OnLeavingMemberGone(Job& job, Member& member, Context& context) {
  member.phase = MemberPhase::kGone;
  std::erase_if(job.members, [](const Member& each) { return each.phase == MemberPhase::kGone; });
  context.changes.schedule = true;
  if (!job.members.empty()) return;
  if (job.ended()) SweepCheckpoints(job, context);
  MaybePending(job, context);
}

}  // namespace tundish::jobs
