#include "server/jobs/reports.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/utf8.h"
#include "server/jobs/arrangement.h"
#include "server/jobs/checkpoints.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/losses.h"
#include "server/jobs/metric_points.h"
#include "server/jobs/progress.h"

namespace tundish::jobs {
namespace {

constexpr size_t kMaxLogText = 8 << 10;

void OnStepDone(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const uint32_t step = report.step().step();
  if (!Counts(job, report.job_epoch(), step + 1)) return;
  FileStep(job, job.SlotOf(member), report);
  if (report.job_epoch() == job.record.job_epoch()) {
    member.step = std::max(member.step, step + 1);
    job.last_advance = context.now.steady;
    MoveProgressLimit(job, context);
  }
  PublishPoints(job, context);
  MaybeRunning(job, context);
}

void OnEvaluation(Job& job, const v1::RankReport& report, Context& context) {
  const v1::Evaluation& evaluation = report.evaluation();
  if (!Counts(job, report.job_epoch(), evaluation.step())) return;
  MoveProgressLimit(job, context);
  // Every rank has the same result, and one that was cut short is done again whole.
  if (job.record.has_evaluation() && job.record.evaluation().step() >= evaluation.step()) return;
  *job.record.mutable_evaluation() = evaluation;
  context.changes.TouchJob(job);
  v1::JobEvent event;
  event.set_type("evaluated");
  event.set_reason("validation_split");
  event.set_message(fmt::format(
      "after {} steps: loss {:.4f}, accuracy {:.4f}, balanced accuracy {:.4f} on {} images",
      evaluation.step(), evaluation.loss(), evaluation.accuracy(), evaluation.balanced_accuracy(),
      evaluation.images()));
  *event.mutable_evaluation() = evaluation;
  Emit(job, std::move(event), context.now, context.changes);
}

void OnFinished(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const bool together = job.stage == Stage::kForming || job.stage == Stage::kTraining;
  if (report.job_epoch() != job.record.job_epoch() || !together) return;
  member.phase = MemberPhase::kFinished;
  if (report.finished().has_model()) {
    const v1::Artifact& model = report.finished().model();
    const bool known = std::ranges::any_of(job.record.artifacts(), [&model](const auto& artifact) {
      return artifact.path() == model.path();
    });
    if (!known) {
      // One written by an arrangement that broke before the end is superseded.
      auto& artifacts = *job.record.mutable_artifacts();
      artifacts.erase(std::remove_if(artifacts.begin(), artifacts.end(),
                                     [&model](const v1::Artifact& artifact) {
                                       return artifact.kind() == model.kind();
                                     }),
                      artifacts.end());
      *artifacts.Add() = model;
      context.changes.TouchJob(job);
      v1::JobEvent event;
      event.set_type("artifact");
      event.set_reason("model_written");
      event.set_message(fmt::format("the model is in {}", model.path()));
      *event.mutable_artifact() = model;
      Emit(job, std::move(event), context.now, context.changes);
    }
  }
  MaybeSucceed(job, context);
}

/// What a rank cannot do, another could not either; only a damaged checkpoint leaves a way: back to
/// the one before, which costs no failure of the budget, since checkpoints are few.
void OnFailed(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const v1::RankFailed& failed = report.failed();
  const std::string message = fmt::format("rank dp={} tp={} on {}: {}", member.dp, member.tp,
                                          member.node, failed.message());
  if (failed.reason() != "checkpoint_unreadable") {
    return EndJob(job, v1::FAILED, failed.reason(), message, context);
  }
  const int slot = job.SlotOf(member);
  if (report.job_epoch() != job.record.job_epoch() || slot >= job.arrangement.starts_size()) return;
  MarkDamaged(job, job.arrangement.starts(slot).checkpoint().path(), failed.message(), context);
  Regroup(job, failed.reason(), message, context);
}

void OnLog(Job& job, const Member& member, const v1::RankReport& report, Context& context) {
  v1::LogLine line = report.log();
  line.set_dp(member.dp);
  line.set_tp(member.tp);
  line.set_job_epoch(report.job_epoch());
  line.set_text(Utf8Prefix(line.text(), kMaxLogText));
  EmitLog(job, std::move(line), context.now, context.changes);
}

void Handle(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  switch (report.body_case()) {
    case v1::RankReport::kReady:
      return OnReady(job, member, report.ready(), context);
    case v1::RankReport::kStopped:
      return OnStopped(job, member, report, context);
    case v1::RankReport::kFormed:
      return OnFormed(job, member, report, context);
    case v1::RankReport::kStep:
      return OnStepDone(job, member, report, context);
    case v1::RankReport::kEvaluation:
      return OnEvaluation(job, report, context);
    case v1::RankReport::kCheckpoint:
      return OnShardWritten(job, member, report, context);
    case v1::RankReport::kFinished:
      return OnFinished(job, member, report, context);
    case v1::RankReport::kFailed:
      return OnFailed(job, member, report, context);
    case v1::RankReport::kLog:
      return OnLog(job, member, report, context);
    case v1::RankReport::kProgress:
      return OnProgress(job, member, report, context);
    case v1::RankReport::kHello:
    case v1::RankReport::BODY_NOT_SET:
      return;
  }
}

/// True if nothing that lies before the report will still come. Otherwise everything is asked for
/// again, once for each repetition: numbers only fall when one begins.
bool InOrder(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const uint64_t number = report.number();
  if (report.after() <= member.last_number) {
    if (number != member.last_number + 1) {
      spdlog::warn("event=reports_lost job={} worker={} first={} last={}", job.id(),
                   member.worker_id, member.last_number + 1, number - 1);
    }
    member.gap_high = 0;
    return true;
  }
  if (member.gap_high == 0 || number <= member.gap_high) {
    context.changes.Send(member.node, ResendOrder(job, member));
  }
  member.gap_high = number;
  return false;
}

}  // namespace

void OnReport(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const uint64_t number = report.number();
  if (number == 0) return;
  if (number > member.last_number && !InOrder(job, member, report, context)) return;
  const std::string worker_id = member.worker_id;
  const std::string node = member.node;
  if (number > member.last_number) {
    member.last_number = number;
    context.changes.TouchProgress(job);
    if (!job.ended()) Handle(job, member, report, context);  // `member` may be another process now
  }
  const Member* still = job.FindMember(worker_id);
  context.changes.acks[{node, worker_id}] = still != nullptr ? still->last_number : number;
}

void RestoreReport(Job& job, const v1::RankReport& report) {
  Member* member = job.FindMember(report.worker_id());
  if (report.has_step()) {
    // The worker may be gone; its coordinates are in the report.
    const int slot = member != nullptr
                         ? job.SlotOf(*member)
                         : report.step().time().dp() * job.tensor() + report.step().time().tp();
    FileStep(job, slot, report);
    if (member != nullptr && report.job_epoch() == job.record.job_epoch()) {
      member->step = std::max(member->step, report.step().step() + 1);
    }
  } else if (report.has_checkpoint() && member != nullptr) {
    job.shards[report.checkpoint().path()][member->tp] = report;
  }
}

}  // namespace tundish::jobs
