#include "server/jobs/arrangement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/check.h"
#include "runtime/base/ulid.h"
#include "server/jobs/checkpoints.h"
#include "server/jobs/elastic.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/losses.h"
#include "server/jobs/metric_points.h"
#include "server/jobs/parking.h"
#include "server/recovery/cut.h"

namespace tundish::jobs {
namespace {

recovery::CutInput MakeCutInput(const Job& job) {
  recovery::CutInput input;
  input.tensor = job.tensor();
  input.data = job.data();
  for (const Member& member : job.members) input.members.push_back(member.stopped);
  if (const v1::CheckpointRecord* newest = NewestUsable(job)) {
    input.checkpoint = {newest->artifact().step(), newest->artifact().path()};
  }
  input.known_sums = job.known_sums;
  return input;
}

void EmitCut(Job& job, const recovery::Cut& cut, bool rewound, Context& context) {
  v1::JobEvent decided;
  decided.set_type("cut_decided");
  decided.set_reason(std::string(recovery::SourceName(cut.source)));
  decided.set_message(cut.reason);
  Emit(job, std::move(decided), context.now, context.changes);
  if (rewound) EmitRewound(job, cut.step, std::string(recovery::SourceName(cut.source)), context);
}

/// A process that fails at every start would use up the budget within a second, and its host's CPU
/// with it: the first failures cost nothing, later ones wait twice as long each time.
std::chrono::milliseconds StartPause(int failures) {
  constexpr int kFree = 2;
  constexpr std::chrono::milliseconds kFirst{500};
  constexpr int kMostDoublings = 6;
  if (failures <= kFree) return {};
  return kFirst * (1 << std::min(failures - kFree - 1, kMostDoublings));
}

/// Bits depend on the vector instructions the math libraries chose: a mixture is said, not hidden.
void WarnOfMixture(Job& job, Context& context) {
  const std::string& first = job.members.front().cpu_capability;
  for (const Member& member : job.members) {
    if (member.cpu_capability == first || member.cpu_capability.empty() || first.empty()) continue;
    v1::LogLine line;
    line.set_dp(member.dp);
    line.set_tp(member.tp);
    line.set_job_epoch(job.record.job_epoch());
    line.set_level("warning");
    line.set_text(fmt::format("not bit-exact: this rank's math uses {}, rank dp=0 tp=0 uses {}",
                              member.cpu_capability, first));
    EmitLog(job, std::move(line), context.now, context.changes);
  }
}

/// The arrangement in preparation becomes the one in force.
void Assign(Job& job, const recovery::Cut& cut, Context& context) {
  const uint32_t before = job.record.job_epoch();
  const uint32_t had = job.progress.step();
  const bool recovering = before > 0 || job.open_incident >= 0;
  if (before > 0) job.cuts[before] = cut.step;
  const bool rewound = CutPoints(job, cut.step, context);
  DropBegunAfter(job, cut.step, context);
  job.yield_asked = false;
  job.form_seconds = job.restore_seconds = 0;
  job.record.set_job_epoch(job.arrangement.job_epoch());
  if (recovering) EmitCut(job, cut, rewound, context);
  NoteCut(job, cut.step, had > cut.step ? had - cut.step : 0, recovery::SourceName(cut.source),
          context);

  job.arrangement.mutable_starts()->Assign(cut.starts.begin(), cut.starts.end());
  job.arrangement.set_start_step(cut.step);
  job.arrangement.set_source(std::string(recovery::SourceName(cut.source)));
  job.known_sums = cut.sums;
  StoreArrangement(job, context);
  context.changes.TouchJob(job);

  std::vector<std::string> workers;
  for (Member& member : job.members) {
    member.assigned_epoch = job.record.job_epoch();
    member.phase = MemberPhase::kForming;
    member.stopped.reset();
    member.step = 0;
    member.limit = kNoLimit;
    workers.push_back(member.worker_id);
  }
  context.rendezvous.Open(job.id(), job.record.job_epoch(), workers);
  for (const Member& member : job.members) {
    context.changes.Send(member.node, AssignOrder(job, member, context));
  }
  job.stage = Stage::kForming;
  MoveProgressLimit(job, context);
  WarnOfMixture(job, context);
  spdlog::info("event=assigned job={} job_epoch={} step={} source={}", job.id(),
               job.record.job_epoch(), cut.step, recovery::SourceName(cut.source));
}

}  // namespace

void EmitRewound(Job& job, uint32_t step, const std::string& reason, Context& context) {
  if (job.record.has_evaluation() && job.record.evaluation().step() > step) {
    job.record.clear_evaluation();
  }
  v1::JobEvent event;
  event.set_type("rewound");
  event.set_reason(reason);
  event.set_message(
      fmt::format("training goes on from step {}: no survivor held a later state", step));
  event.set_rewound_to_step(step);
  Emit(job, std::move(event), context.now, context.changes);
}

v1::CoordinatorMessage OrderFor(const Job& job, const Member& member, uint32_t job_epoch) {
  v1::CoordinatorMessage message;
  v1::RankOrder* order = message.mutable_order();
  order->set_worker_id(member.worker_id);
  order->set_job_id(job.id());
  order->set_job_epoch(job_epoch);
  return message;
}

v1::CoordinatorMessage StartWorkerOrder(const Job& job, const Member& member) {
  v1::CoordinatorMessage message;
  v1::StartWorker* start = message.mutable_start_worker();
  start->set_worker_id(member.worker_id);
  start->set_job_id(job.id());
  start->mutable_devices()->Assign(member.devices.begin(), member.devices.end());
  start->set_threads(job.spec().parallel().threads_per_rank());
  start->set_secret(member.secret);
  start->set_warm_spares(job.spec().recovery().warm_spares());
  if (start->warm_spares() > 0) {
    *start->mutable_spec() = job.spec();
    *start->mutable_data() = job.record.data_report();
  }
  return message;
}

v1::CoordinatorMessage StopOrder(const Job& job, const Member& member) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.arrangement.job_epoch() - 1);
  message.mutable_order()->mutable_stop();
  return message;
}

v1::CoordinatorMessage YieldOrder(const Job& job, const Member& member) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.record.job_epoch());
  message.mutable_order()->mutable_yield();
  return message;
}

v1::CoordinatorMessage ExitOrder(const Job& job, const Member& member) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.record.job_epoch());
  message.mutable_order()->mutable_exit();
  return message;
}

v1::CoordinatorMessage ResendOrder(const Job& job, const Member& member) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.record.job_epoch());
  message.mutable_order()->mutable_resend();
  return message;
}

v1::CoordinatorMessage AssignOrder(const Job& job, const Member& member, const Context& context) {
  v1::CoordinatorMessage message = OrderFor(job, member, job.record.job_epoch());
  v1::Assignment* assign = message.mutable_order()->mutable_assign();
  assign->set_dp(member.dp);
  assign->set_tp(member.tp);
  *assign->mutable_members() = job.arrangement.members();
  *assign->mutable_spec() = job.spec();
  assign->mutable_spec()->mutable_parallel()->set_data(job.data());
  *assign->mutable_data() = job.record.data_report();
  assign->set_total_steps(job.record.total_steps());
  assign->set_artifact_root(context.settings.artifact_root);
  assign->set_job_folder(job.id());
  *assign->mutable_start() = job.arrangement.starts(job.SlotOf(member));
  // Later than the coordinator finds a hang: it sees who hangs, a collective does not.
  assign->set_collective_timeout_seconds(2 * job.spec().recovery().step_deadline_seconds() + 60);
  return message;
}

void StoreArrangement(Job& job, Context& context) {
  v1::Arrangement& arrangement = job.arrangement;
  arrangement.set_job_id(job.id());
  *arrangement.mutable_time() = ToTimestamp(context.now.wall);
  arrangement.clear_members();
  arrangement.clear_secrets();
  arrangement.clear_incarnations();
  for (const Member& member : job.members) {
    v1::Member* entry = arrangement.add_members();
    entry->set_dp(member.dp);
    entry->set_tp(member.tp);
    entry->set_worker_id(member.worker_id);
    entry->set_node(member.node);
    entry->mutable_devices()->Assign(member.devices.begin(), member.devices.end());
    const Node* node = context.nodes.Find(member.node);
    if (node != nullptr) entry->set_data_address(node->registration.data_address());
    arrangement.add_secrets(member.secret);
    arrangement.add_incarnations(node != nullptr ? node->incarnation : "");
  }
  arrangement.clear_known_sums();
  arrangement.clear_known_sums_step();
  if (job.known_sums) {
    arrangement.set_known_sums_step(job.known_sums->step);
    *arrangement.mutable_known_sums() = job.known_sums->sums;
  }
  context.changes.TouchArrangement(job);
}

void StartMember(Job& job, Member& member, Context& context) {
  TUNDISH_CHECK(!member.devices.empty());
  const int dp = member.dp;
  const int tp = member.tp;
  member = {.dp = dp,
            .tp = tp,
            .worker_id = NewUlid(context.now.wall),
            .secret = RandomHex(16),
            .node = std::move(member.node),
            .devices = std::move(member.devices),
            .phase = MemberPhase::kStarting,
            .limit = context.now.steady + context.settings.start_limit};
  context.nodes.Occupy(member.node, member.devices, {job.id(), member.worker_id});
  const std::chrono::milliseconds pause = StartPause(job.start_failures);
  if (pause > std::chrono::milliseconds::zero()) {
    member.start_after = context.now.steady + pause;
    member.limit += pause;
  } else {
    context.changes.Send(member.node, StartWorkerOrder(job, member));
  }
}

void StartHeldBack(Job& job, Context& context) {
  for (Member& member : job.members) {
    const bool due = member.phase == MemberPhase::kStarting && !member.start_sent &&
                     member.start_after != std::chrono::steady_clock::time_point() &&
                     member.start_after <= context.now.steady;
    if (!due) continue;
    member.start_after = {};
    context.changes.Send(member.node, StartWorkerOrder(job, member));
  }
}

void KillMember(Job& job, Member& member, const std::string& cause, Context& context) {
  spdlog::warn("event=kill_worker job={} worker={} node={} cause={}", job.id(), member.worker_id,
               member.node, cause);
  if (member.kill_cause.empty()) member.kill_cause = cause;
  member.limit = context.now.steady + context.settings.exit_limit;
  v1::CoordinatorMessage message;
  message.mutable_kill_worker()->set_worker_id(member.worker_id);
  message.mutable_kill_worker()->set_job_id(job.id());
  context.changes.Send(member.node, std::move(message));
}

void PlaceJob(Job& job, const partitioner::Placement& placement, Context& context) {
  job.wait_reason.clear();
  SetState(job, v1::PLANNED, "devices_reserved", placement.reason, context.now, context.changes);
  for (const partitioner::Place& place : placement.places) {
    Member& member = job.members.emplace_back();
    member.dp = place.dp;
    member.tp = place.tp;
    member.node = place.node;
    member.devices = {place.device};
    StartMember(job, member, context);
  }
  job.stage = Stage::kCollecting;
  // Above every number a process of this job may have heard of.
  job.arrangement.set_job_epoch(std::max(job.record.job_epoch(), job.arrangement.job_epoch()) + 1);
  job.arrangement.clear_starts();
  job.arrangement.set_reason(placement.reason);
  StoreArrangement(job, context);
  if (!job.record.has_started()) *job.record.mutable_started() = ToTimestamp(context.now.wall);
  SetState(job, v1::STARTING, "ranks_ordered",
           fmt::format("{} rank processes are starting", job.members.size()), context.now,
           context.changes);
}

/// A rank answers only between two micro-batches: one in the middle of a long step is healthy.
std::chrono::steady_clock::duration StopLimit(const Job& job, const Settings& settings) {
  using std::chrono::steady_clock;
  constexpr double kSteps = 3;
  double longest = std::max(0.0, job.progress.latest().step_seconds());
  for (const double seconds : job.recent_step_seconds) longest = std::max(longest, seconds);
  // Compared as seconds: a step time is a rank's word and may be out of every range.
  const double deadline = job.spec().recovery().step_deadline_seconds();
  const std::chrono::duration<double> of_job(std::min(kSteps * longest, deadline));
  return std::min<steady_clock::duration>(
      std::max<steady_clock::duration>(settings.stop_limit,
                                       std::chrono::duration_cast<steady_clock::duration>(of_job)),
      std::chrono::seconds(job.spec().recovery().step_deadline_seconds()));
}

void StopMember(Job& job, Member& member, Context& context) {
  member.stopped.reset();
  member.phase = MemberPhase::kStopping;
  if (member.kill_cause.empty())
    member.limit = context.now.steady + StopLimit(job, context.settings);
  context.changes.Send(member.node, StopOrder(job, member));
}

void AskToYield(Job& job, Context& context) {
  job.yield_asked = true;
  for (const Member& member : job.members) {
    if (member.alive()) context.changes.Send(member.node, YieldOrder(job, member));
  }
}

void BeginCollection(Job& job, Context& context) {
  job.stage = Stage::kCollecting;
  job.progress_limit = kNoLimit;
  job.yield_asked = false;
  job.arrangement.set_job_epoch(job.arrangement.job_epoch() + 1);
  job.arrangement.clear_starts();
  context.rendezvous.Fence(job.id(), job.arrangement.job_epoch());
  for (Member& member : job.members) {
    if (member.alive() && member.phase != MemberPhase::kStarting &&
        member.phase != MemberPhase::kReady && member.phase != MemberPhase::kStopped) {
      StopMember(job, member, context);
    }
  }
  StoreArrangement(job, context);
}

void MaybeDecide(Job& job, Context& context) {
  if (job.stage != Stage::kCollecting) return;
  if (job.progress.has_parking()) return MaybePark(job, context);
  MaybeShrink(job, context);
  const bool complete = std::ranges::all_of(job.members, [](const Member& member) {
    return (member.phase == MemberPhase::kReady || member.phase == MemberPhase::kStopped) &&
           member.kill_cause.empty();  // one that is being killed will be replaced
  });
  if (!complete) return;
  TakeInJoiners(job, context);
  const absl::StatusOr<recovery::Cut> cut = recovery::DecideCut(MakeCutInput(job));
  if (!cut.ok()) {
    EndJob(job, v1::FAILED, "cut_undecidable", std::string(cut.status().message()), context);
    return;
  }
  Assign(job, *cut, context);
}

void OnReady(Job& job, Member& member, const v1::Ready& ready, Context& context) {
  if (member.phase != MemberPhase::kStarting) return;
  member.phase = MemberPhase::kReady;
  member.pid = ready.pid();
  member.cpu_capability = ready.cpu_capability();
  if (member.kill_cause.empty()) member.limit = kNoLimit;
  if (job.IsJoiner(member)) return OnJoinerReady(job, context);
  MaybeDecide(job, context);
}

namespace {

/// All stop after the same step; when the last one has said so, the next arrangement begins.
void OnAgreedStop(Job& job, Member& member, const v1::Stopped& stopped, Context& context) {
  member.stopped = stopped;
  member.step = stopped.step();
  member.phase = MemberPhase::kStopped;
  const bool complete = std::ranges::all_of(
      job.members, [](const Member& each) { return each.phase == MemberPhase::kStopped; });
  if (!complete) return MoveProgressLimit(job, context);
  BeginCollection(job, context);
  MaybeDecide(job, context);
}

}  // namespace

void OnStopped(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  const uint32_t epoch = report.job_epoch();
  if (job.stage == Stage::kForming || job.stage == Stage::kTraining) {
    if (epoch != job.record.job_epoch()) return;  // of an arrangement that is over
    if (report.stopped().agreed()) return OnAgreedStop(job, member, report.stopped(), context);
    OnDisturbance(job, member, "collective_failed", report.stopped().cause(), context);
  }
  if (job.stage != Stage::kCollecting) return;
  if (member.phase == MemberPhase::kSaving && epoch == job.arrangement.job_epoch()) {
    return OnSaved(job, member, report.stopped(), context);
  }
  if (member.phase != MemberPhase::kStopping) return;
  const uint32_t preparing = job.arrangement.job_epoch();
  // An older one may still be under way, made before the assignment the rank acts in: where it
  // stood then is not where it stands now (tests/model/recovery.pml, TAKE_ANY_OLDER).
  if (epoch != member.assigned_epoch && epoch + 1 != preparing) return;
  member.stopped = report.stopped();
  if (report.stopped().has_state()) member.step = report.stopped().step();
  member.phase = MemberPhase::kStopped;
  if (member.kill_cause.empty()) member.limit = kNoLimit;
  MaybeDecide(job, context);
}

void OnFormed(Job& job, Member& member, const v1::RankReport& report, Context& context) {
  if (job.stage != Stage::kForming || report.job_epoch() != job.record.job_epoch()) return;
  member.phase = MemberPhase::kTraining;
  member.step = std::max(member.step, report.formed().step());
  job.form_seconds = std::max(job.form_seconds, report.formed().form_seconds());
  job.restore_seconds = std::max(job.restore_seconds, report.formed().restore_seconds());
  MoveProgressLimit(job, context);
  const bool complete = std::ranges::all_of(
      job.members, [](const Member& each) { return each.phase != MemberPhase::kForming; });
  if (!complete) return;
  job.stage = Stage::kTraining;
  job.start_failures = 0;
  job.progress.set_formed_epoch(job.record.job_epoch());
  context.changes.TouchProgress(job);
  NoteFormed(job, context);
  MaybeRunning(job, context);
  MaybeSucceed(job, context);  // another agent's news of its end may have come first
}

void MaybeRunning(Job& job, Context& context) {
  const bool under_way = job.record.state() == v1::STARTING || job.record.state() == v1::RECOVERING;
  if (!under_way || job.stage != Stage::kTraining) return;
  const uint32_t start = job.arrangement.start_step();
  const bool advanced = start >= job.record.total_steps() ||
                        std::ranges::all_of(job.members, [start](const Member& member) {
                          return member.step > start || member.phase == MemberPhase::kFinished;
                        });
  if (!advanced) return;
  const bool recovered = job.record.state() == v1::RECOVERING;
  if (job.data() < job.spec().parallel().data()) context.changes.schedule = true;
  CloseIncident(job, context);
  SetState(job, v1::RUNNING, recovered ? "recovered" : "all_ranks_training",
           fmt::format("{} ranks train; they began at step {} of {}", job.members.size(), start,
                       job.record.total_steps()),
           context.now, context.changes);
}

void MoveProgressLimit(Job& job, const Context& context) {
  if (job.stage != Stage::kForming && job.stage != Stage::kTraining) return;
  job.last_progress = context.now.steady;
  job.probe = 0;
  job.progress_limit =
      context.now.steady + std::chrono::seconds(job.spec().recovery().step_deadline_seconds());
}

}  // namespace tundish::jobs
