#include "server/jobs/losses.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/elastic.h"
#include "server/jobs/lifecycle.h"

namespace tundish::jobs {
namespace {

double MillisecondsSince(std::chrono::steady_clock::time_point then, Now now) {
  return std::chrono::duration<double, std::milli>(now.steady - then).count();
}

v1::Incident* OpenIncidentOf(Job& job) {
  return job.open_incident < 0 ? nullptr : job.record.mutable_incidents(job.open_incident);
}

void StoreIncident(Job& job, const v1::Incident& incident, Context& context) {
  context.changes.writes.PutIncident(job.id(), incident);
  context.changes.TouchJob(job);
}

void EmitLost(Job& job, const Member& member, const Loss& loss, Context& context) {
  v1::JobEvent event;
  event.set_type("rank_lost");
  event.set_reason("rank_" + loss.cause);
  event.set_message(fmt::format("rank dp={} tp={} on {} is gone: {}{}{}", member.dp, member.tp,
                                member.node, loss.cause, loss.detail.empty() ? "" : ": ",
                                loss.detail));
  Emit(job, std::move(event), context.now, context.changes);
}

/// Opens the incident, or gives the open one its true cause: a death explains the collectives that
/// failed because of it, though their news may come first.
void NoteIncident(Job& job, const Member& member, const Loss& loss, Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr) {
    job.open_incident = job.record.incidents_size();
    job.incident_began = context.now.steady;
    incident = job.record.add_incidents();
    incident->set_number(job.record.incidents_size());
    *incident->mutable_time() = ToTimestamp(context.now.wall);
    incident->set_from_job_epoch(job.record.job_epoch());
    incident->set_replacement("none");
    job.incident_detail = loss.detail;
  } else if (incident->cause() != "collective_failed") {
    return;
  }
  if (job.incident_detail.empty()) job.incident_detail = loss.detail;
  incident->set_dp(member.dp);
  incident->set_tp(member.tp);
  incident->set_node(member.node);
  incident->set_cause(loss.cause);
  incident->set_detect_ms(loss.detect_ms);
  StoreIncident(job, *incident, context);
}

/// Counts a failure. False if that was one too many; the job has failed then. Members of one
/// arrangement fall together, so its break counts once, whoever follows; a process that never was
/// in an arrangement counts by itself.
bool CountFailure(Job& job, const Member& member, const Loss& loss, Context& context) {
  if (member.assigned_epoch > 0) {
    if (member.assigned_epoch == job.counted_epoch) return true;
    job.counted_epoch = member.assigned_epoch;
  }
  job.progress.set_failures(job.progress.failures() + 1);
  context.changes.TouchProgress(job);
  const uint32_t budget = job.spec().recovery().max_failures();
  if (job.progress.failures() <= budget) return true;
  // What began the trouble the job did not get out of: what followed may be a mere consequence.
  const v1::Incident* began = OpenIncidentOf(job);
  const std::string first = began == nullptr ? loss.cause : began->cause();
  const std::string& detail = began == nullptr ? loss.detail : job.incident_detail;
  EndJob(job, v1::FAILED, "rank_" + first,
         fmt::format("{} failures of ranks, recovery.max_failures allows {}; what began the last "
                     "trouble: {}{}{}{}",
                     job.progress.failures(), budget, first, detail.empty() ? "" : ": ", detail,
                     loss.cause == first ? "" : fmt::format("; the last: {}", loss.cause)),
         context);
  return false;
}

void Vacate(Member& member) {
  member = {.dp = member.dp, .tp = member.tp, .phase = MemberPhase::kVacant};
}

/// A free device for the slot: on a host that already has ranks of the job, else anywhere.
bool FindDevice(const Job& job, Member& member, const Context& context) {
  const scheduler::NodeView* best = nullptr;
  std::string device;
  const std::vector<scheduler::NodeView> views = context.nodes.View();
  const auto has_ranks = [&job](const scheduler::NodeView& view) {
    return std::ranges::find(job.members, view.node, &Member::node) != job.members.end();
  };
  for (const scheduler::NodeView& view : views) {
    if (!view.ready || view.drained ||
        (best != nullptr && (has_ranks(*best) || !has_ranks(view)))) {
      continue;
    }
    const auto free = std::ranges::find_if(view.devices, [&](const scheduler::NodeDevice& each) {
      return each.free && each.kind == job.spec().parallel().device();
    });
    if (free == view.devices.end()) continue;
    best = &view;
    device = free->name;
  }
  if (best == nullptr) return false;
  member.node = best->node;
  member.devices = {device};
  return true;
}

/// A process for the slot of one that is gone: on the same device, else wherever one is free. None
/// for a job that is about to give its devices back.
void Replace(Job& job, Member& member, Context& context) {
  const Node* node = context.nodes.Find(member.node);
  const bool reusable = node != nullptr && node->ready() && !node->drained;
  if (reusable && !job.progress.has_parking()) {
    StartMember(job, member, context);
    NoteReplacement(job, "cold", context);
  } else {
    Vacate(member);
    FillVacancies(job, context);
  }
}

}  // namespace

void Regroup(Job& job, const std::string& reason, const std::string& message, Context& context) {
  if (job.record.state() != v1::RECOVERING) {
    SetState(job, v1::RECOVERING, reason, message, context.now, context.changes);
  }
  if (job.stage != Stage::kCollecting) BeginCollection(job, context);
}

void OnMemberGone(Job& job, Member& member, const Loss& loss, Context& context) {
  Loss named = loss;
  if (!member.kill_cause.empty()) named.cause = member.kill_cause;
  if (job.IsJoiner(member)) {
    member.phase = MemberPhase::kGone;
    return DropJoiners(job, true, context);
  }
  named.detect_ms += member.found_after_ms;
  spdlog::warn("event=rank_lost job={} job_epoch={} dp={} tp={} node={} worker={} cause={}",
               job.id(), job.record.job_epoch(), member.dp, member.tp, member.node,
               member.worker_id, named.cause);
  NoteIncident(job, member, named, context);
  EmitLost(job, member, named, context);
  member.phase = MemberPhase::kGone;
  if (member.assigned_epoch == 0) ++job.start_failures;
  if (!CountFailure(job, member, named, context)) return;
  Regroup(job, "rank_" + named.cause,
          fmt::format("rank dp={} tp={} on {} was lost ({})", member.dp, member.tp, member.node,
                      named.cause),
          context);
  Replace(job, member, context);
  StoreArrangement(job, context);
  MaybeDecide(job, context);  // others may have been waited for only to hear of this one
}

void OnHostLost(Job& job, const std::string& node, Context& context) {
  if (std::ranges::find(job.joiners, node, &Member::node) != job.joiners.end()) {
    DropJoiners(job, true, context);
  }
  bool first = true;
  for (Member& member : job.members) {
    if (member.node != node || !member.alive()) continue;
    const Loss loss{.cause = "host_lost"};
    EmitLost(job, member, loss, context);
    if (std::exchange(first, false)) {
      NoteIncident(job, member, loss, context);
      if (!CountFailure(job, member, loss, context)) return;
    }
    Vacate(member);
  }
  if (first) return;
  Regroup(job, "rank_host_lost", fmt::format("host {} is lost", node), context);
  FillVacancies(job, context);
  StoreArrangement(job, context);
  MaybeDecide(job, context);
}

void FillVacancies(Job& job, Context& context) {
  if (job.progress.has_parking()) return;
  bool filled = false;
  for (Member& member : job.members) {
    if (member.phase != MemberPhase::kVacant || !FindDevice(job, member, context)) continue;
    StartMember(job, member, context);
    NoteReplacement(job, "cold", context);
    filled = true;
  }
  if (filled) StoreArrangement(job, context);
}

void OnDisturbance(Job& job, Member& member, const std::string& cause, const std::string& detail,
                   Context& context) {
  const Loss loss{.cause = cause, .detail = detail};
  NoteIncident(job, member, loss, context);
  if (!CountFailure(job, member, loss, context)) return;
  Regroup(job, cause,
          fmt::format("rank dp={} tp={} on {}: {}{}{}", member.dp, member.tp, member.node, cause,
                      detail.empty() ? "" : ": ", detail),
          context);
}

void NoteCut(Job& job, uint32_t cut_step, uint32_t steps_lost, std::string_view restored_from,
             Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr) return;
  incident->set_to_job_epoch(job.record.job_epoch());
  incident->set_cut_step(cut_step);
  incident->set_steps_lost(incident->steps_lost() + steps_lost);
  // Of several cuts in one incident, the one that cost something is told.
  if (incident->restored_from().empty() || restored_from != "survivor") {
    incident->set_restored_from(std::string(restored_from));
  }
  incident->set_quiesce_ms(MillisecondsSince(job.incident_began, context.now));
  StoreIncident(job, *incident, context);
}

void NoteFormed(Job& job, Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr) return;
  incident->set_restore_ms(MillisecondsSince(job.incident_began, context.now));
  incident->set_form_ms(job.form_seconds * 1000);
  incident->set_copy_ms(job.restore_seconds * 1000);
  incident->set_data(static_cast<uint32_t>(job.data()));
  StoreIncident(job, *incident, context);
}

void CloseIncident(Job& job, Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr) return;
  incident->set_first_step_ms(MillisecondsSince(job.incident_began, context.now));
  incident->set_total_ms(incident->detect_ms() + incident->first_step_ms());
  incident->set_closed(true);
  StoreIncident(job, *incident, context);
  v1::JobEvent event;
  event.set_type("recovered");
  event.set_reason(incident->restored_from());
  event.set_message(fmt::format("recovered from {} in {:.0f} ms, {} steps lost", incident->cause(),
                                incident->total_ms(), incident->steps_lost()));
  *event.mutable_incident() = *incident;
  job.open_incident = -1;
  Emit(job, std::move(event), context.now, context.changes);
}

void NoteReplacement(Job& job, const std::string& replacement, Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr || incident->replacement() == "shrink") return;
  incident->set_replacement(replacement);
  StoreIncident(job, *incident, context);
}

void NoteReleased(Job& job, uint32_t step, Context& context) {
  v1::Incident* incident = OpenIncidentOf(job);
  if (incident == nullptr) return;
  incident->set_cut_step(step);
  incident->set_replacement("released");
  if (incident->restored_from().empty()) {
    incident->set_restored_from(step > 0 ? "checkpoint" : "start");
  }
  incident->set_quiesce_ms(MillisecondsSince(job.incident_began, context.now));
  incident->set_total_ms(incident->detect_ms() + incident->quiesce_ms());
  incident->set_closed(true);
  StoreIncident(job, *incident, context);
  v1::JobEvent event;
  event.set_type("released");
  event.set_reason(job.progress.parking().reason());
  event.set_message(fmt::format("gives its devices back {:.0f} ms after {}", incident->total_ms(),
                                incident->cause()));
  *event.mutable_incident() = *incident;
  job.open_incident = -1;
  Emit(job, std::move(event), context.now, context.changes);
}

}  // namespace tundish::jobs
