#include "server/jobs/parking.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/checkpoints.h"
#include "server/jobs/elastic.h"
#include "server/jobs/losses.h"
#include "server/jobs/metric_points.h"
#include "server/recovery/cut.h"

namespace tundish::jobs {
namespace {

v1::CoordinatorMessage SaveOrder(const Job& job, const Member& member, const v1::StartPoint& start,
                                 const Context& context) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.arrangement.job_epoch());
  v1::Save* save = message.mutable_order()->mutable_save();
  *save->mutable_start() = start;
  save->mutable_start()->clear_send_to_dp();
  save->set_artifact_root(context.settings.artifact_root);
  save->set_job_folder(job.id());
  return message;
}

/// One holder of each tp that has not reported its shard yet, by slot.
std::vector<int> Savers(const Job& job, const recovery::Cut& cut) {
  std::vector<int> savers;
  for (int tp = 0; tp < job.tensor(); ++tp) {
    const bool written = std::ranges::any_of(job.shards, [&](const auto& entry) {
      const auto shard = entry.second.find(tp);
      return shard != entry.second.end() &&
             shard->second.job_epoch() == job.arrangement.job_epoch() &&
             shard->second.checkpoint().step() == cut.step;
    });
    if (written) continue;
    for (int slot = tp; slot < std::ssize(job.members); slot += job.tensor()) {
      const v1::StartPoint& start = cut.starts[slot];
      if (!start.has_keep() && !start.has_commit()) continue;
      savers.push_back(slot);
      break;
    }
  }
  return savers;
}

/// State is as safe as it can be: processes may go.
void Release(Job& job, uint32_t step, const std::string& kept_in, Context& context) {
  const v1::Parking& parking = job.progress.parking();
  if (job.record.job_epoch() > 0) {
    job.cuts[job.record.job_epoch()] = step;
    if (CutPoints(job, step, context)) {
      EmitRewound(job, step, step > 0 ? "checkpoint" : "start", context);
    }
    DropBegunAfter(job, step, context);
  }
  job.progress.mutable_parking()->set_released(true);
  job.stage = Stage::kReleasing;
  job.progress_limit = kNoLimit;
  job.wait_limit = kNoLimit;
  job.known_sums.reset();
  context.changes.TouchProgress(job);
  NoteReleased(job, step, context);
  SetState(job, v1::PREEMPTED, parking.reason(),
           fmt::format("{}; {}; its devices become free", parking.message(), kept_in), context.now,
           context.changes);
  JoinersAsMembers(job);
  std::erase_if(job.members, [](const Member& member) { return !member.alive(); });
  for (Member& member : job.members) {
    if (member.phase == MemberPhase::kStarting) {
      KillMember(job, member, "job_released", context);
    } else {
      member.limit = context.now.steady + context.settings.exit_limit;
      context.changes.Send(member.node, ExitOrder(job, member));
    }
  }
  MaybePending(job, context);
}

/// Without a checkpoint of the cut the job keeps its devices: a step would be lost.
void GoOnInstead(Job& job, uint32_t step, Context& context) {
  v1::JobEvent event;
  event.set_type("yield_failed");
  event.set_reason("checkpoint_unwritable");
  event.set_message(
      fmt::format("asked to give its devices back ({}), but a rank could not write "
                  "the state after {} steps: it keeps them and goes on",
                  job.progress.parking().reason(), step));
  Emit(job, std::move(event), context.now, context.changes);
  job.progress.clear_parking();
  context.changes.TouchProgress(job);
  // Ranks and agents have heard of the number in preparation, with Save: a Stop may carry it.
  job.arrangement.set_job_epoch(job.arrangement.job_epoch() + 1);
  context.rendezvous.Fence(job.id(), job.arrangement.job_epoch());
  StoreArrangement(job, context);
  FillVacancies(job, context);
  MaybeDecide(job, context);
}

recovery::CutInput Survivors(const Job& job) {
  recovery::CutInput input{.tensor = job.tensor(), .data = job.data()};
  for (const Member& member : job.members) input.members.push_back(member.stopped);
  input.known_sums = job.known_sums;
  return input;
}

}  // namespace

std::string_view YieldReasonName(YieldReason reason) {
  switch (reason) {
    case YieldReason::kPreempted:
      return "preempted";
    case YieldReason::kDrained:
      return "drained";
    case YieldReason::kPaused:
      return "paused";
    case YieldReason::kStopped:
      return "stopped";
    case YieldReason::kDevicesMissing:
      return "devices_missing";
  }
  return "unknown";
}

bool RequestYield(Job& job, YieldReason reason, const std::string& message, Context& context) {
  if (job.leaving()) return false;
  if (job.members.empty()) {
    if (reason == YieldReason::kPaused && !std::exchange(job.held, true)) {
      job.progress.set_held(true);
      context.changes.TouchProgress(job);
    }
    return false;
  }
  const bool hold = reason == YieldReason::kPaused;
  v1::Parking* parking = job.progress.mutable_parking();
  context.changes.TouchProgress(job);
  if (!parking->reason().empty()) {
    parking->set_hold(parking->hold() || hold);
    return true;
  }
  parking->set_reason(std::string(YieldReasonName(reason)));
  parking->set_message(message);
  parking->set_hold(hold);
  spdlog::info("event=yield_requested job={} reason={} stage={}", job.id(), parking->reason(),
               static_cast<int>(job.stage));
  v1::JobEvent event;
  event.set_type("yield_requested");
  event.set_reason(parking->reason());
  event.set_message(message);
  Emit(job, std::move(event), context.now, context.changes);
  if (job.stage == Stage::kCollecting) {
    MaybePark(job, context);
  } else {
    AskToYield(job, context);
  }
  return true;
}

void LetGoOn(Job& job, Context& context) {
  if (!std::exchange(job.held, false)) return;
  job.progress.set_held(false);
  context.changes.TouchProgress(job);
  context.changes.schedule = true;
}

void MaybePark(Job& job, Context& context) {
  const bool awaited = std::ranges::any_of(job.members, [](const Member& member) {
    return member.phase == MemberPhase::kStopping || member.phase == MemberPhase::kSaving;
  });
  if (awaited || job.stage != Stage::kCollecting) return;
  if (job.record.job_epoch() == 0) return Release(job, 0, "it had not begun", context);
  const absl::StatusOr<recovery::Cut> cut = recovery::DecideCut(Survivors(job));
  const v1::CheckpointRecord* newest = NewestUsable(job);
  const uint32_t recorded = newest == nullptr ? 0 : newest->artifact().step();
  const std::string kept_in = newest == nullptr ? "it begins again when it is placed"
                                                : fmt::format("its state after {} steps is in {}",
                                                              recorded, newest->artifact().path());
  // Nobody holds a whole state, or it is on disk already.
  if (!cut.ok() || cut->source != recovery::Source::kSurvivor || cut->step <= recorded) {
    return Release(job, recorded, kept_in, context);
  }
  const bool failed = std::ranges::any_of(
      job.members, [](const Member& member) { return member.stopped && member.save_failed; });
  if (failed) {
    for (Member& member : job.members) member.save_failed = false;
    return GoOnInstead(job, cut->step, context);
  }
  job.known_sums = cut->sums ? cut->sums : job.known_sums;
  StoreArrangement(job, context);
  for (const int slot : Savers(job, *cut)) {
    Member& member = job.members[slot];
    member.phase = MemberPhase::kSaving;
    member.save_start = cut->starts[slot];
    member.limit =
        context.now.steady + std::chrono::seconds(job.spec().recovery().step_deadline_seconds());
    context.changes.Send(member.node, SaveOrder(job, member, cut->starts[slot], context));
  }
}

void OnSaved(Job& job, Member& member, const v1::Stopped& stopped, Context& context) {
  member.phase = MemberPhase::kStopped;
  member.stopped = stopped;
  if (stopped.has_state()) member.step = stopped.step();
  member.save_failed = !stopped.saved();
  if (member.kill_cause.empty()) member.limit = kNoLimit;
  if (!stopped.saved()) {
    spdlog::warn("event=save_failed job={} dp={} tp={} error=\"{}\"", job.id(), member.dp,
                 member.tp, stopped.cause());
  }
  MaybeDecide(job, context);
}

void RepeatParkingOrder(Job& job, const Member& member, Context& context) {
  if (member.phase == MemberPhase::kSaving) {
    context.changes.Send(member.node, SaveOrder(job, member, member.save_start, context));
  } else if (job.yield_asked &&
             (member.phase == MemberPhase::kForming || member.phase == MemberPhase::kTraining)) {
    context.changes.Send(member.node, YieldOrder(job, member));
  }
}

void MaybePending(Job& job, Context& context) {
  if (job.stage != Stage::kReleasing || !job.members.empty()) return;
  SweepCheckpoints(job, context);
  job.stage = Stage::kIdle;
  job.steps.clear();
  job.held = job.progress.parking().hold();
  job.progress.set_held(job.held);
  const v1::Parking parking = std::exchange(*job.progress.mutable_parking(), {});
  job.progress.clear_parking();
  context.changes.TouchProgress(job);
  context.changes.schedule = true;
  job.wait_reason = job.held ? "it is held until it is let go on" : "waiting for devices";
  SetState(job, v1::PENDING, parking.reason(), parking.message(), context.now, context.changes);
}

}  // namespace tundish::jobs
