#include <algorithm>

#include <spdlog/spdlog.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/core.h"
#include "server/jobs/reports.h"

// The core's start: from what the store has back to tables in memory.
namespace tundish::jobs {
namespace {

void RestoreMembers(Job& job, const v1::JobProgress& progress, const Context& context) {
  const auto& arrangement = job.arrangement;
  for (int slot = 0; slot < arrangement.members_size(); ++slot) {
    const v1::Member& stored = arrangement.members(slot);
    Member& member = job.members.emplace_back();
    member.dp = stored.dp();
    member.tp = stored.tp();
    member.worker_id = stored.worker_id();
    member.node = stored.node();
    member.devices = {stored.devices().begin(), stored.devices().end()};
    if (slot < arrangement.secrets_size()) member.secret = arrangement.secrets(slot);
    if (member.worker_id.empty()) continue;  // vacant
    const auto acked = progress.acked_reports().find(member.worker_id);
    if (acked == progress.acked_reports().end()) {
      member.phase = MemberPhase::kStarting;  // its StartWorker may never have left
      member.limit = context.now.steady + context.settings.start_limit;
      continue;
    }
    member.last_number = acked->second;
    member.start_sent = true;
    member.phase = job.record.job_epoch() == 0 ? MemberPhase::kReady : MemberPhase::kTraining;
    member.step = progress.step();
    member.assigned_epoch = job.record.job_epoch();
  }
}

void RestorePoints(Job& job) {
  const uint32_t published = job.progress.has_latest() ? job.progress.latest().step() + 1 : 0;
  // A return to a checkpoint lies below the last point, a cut that commits one above it.
  job.next_point = std::min(job.progress.step(), published);
  job.covered = job.progress.step();
  if (!job.arrangement.starts().empty() && job.arrangement.job_epoch() > 1) {
    job.cuts[job.arrangement.job_epoch() - 1] = job.arrangement.start_step();
  }
}

}  // namespace

absl::Status Core::Load() {
  absl::StatusOr<store::State> state = parts_.store.LoadState();
  if (!state.ok()) return state.status();
  const Now now = parts_.clock();
  for (const v1::NodeRecord& node : state->nodes) nodes_.Load(node, now, parts_.settings.restart_grace);
  for (const v1::RequestRecord& request : state->requests) {
    requests_[{request.tenant(), request.request_id()}] = {request.job_id(), request.spec_hash()};
  }
  Change([&](Context& context) {
    for (const auto& [id, stored] : state->jobs) LoadJob(stored, context);
    for (const auto& [id, job] : jobs_) index_.Update(*job);
  });
  spdlog::info("event=state_loaded jobs={} nodes={}", jobs_.size(), state->nodes.size());
  return absl::OkStatus();
}

void Core::LoadJob(const store::StoredJob& stored, Context& context) {
  auto owned = std::make_unique<Job>();
  Job& job = *owned;
  job.record = stored.job;
  job.record.set_last_seq(stored.last_seq);
  job.record.set_artifact_root(parts_.settings.artifact_root);
  job.record.mutable_incidents()->Assign(stored.incidents.begin(), stored.incidents.end());
  job.progress = stored.progress;
  job.checkpoints = stored.checkpoints;
  jobs_[job.id()] = std::move(owned);
  const bool ended = IsTerminal(job.record.state());
  streams_.SetHead(job.id(), job.spec().tenant(), stored.last_seq, ended);
  job.check.done = job.record.data_report().train_images() > 0;
  if (ended) {
    job.stage = Stage::kEnded;
    return;
  }
  job.held = job.progress.held();
  if (!stored.arrangement) return;  // PENDING, and never had ranks

  job.arrangement = *stored.arrangement;
  if (job.record.state() == v1::PENDING) {
    RestorePoints(job);
    return;
  }
  if (job.arrangement.has_known_sums()) {
    job.known_sums = {job.arrangement.known_sums_step(), job.arrangement.known_sums()};
  }
  RestoreMembers(job, stored.progress, context);
  RestorePoints(job);
  for (const Member& member : job.members) {
    nodes_.Occupy(member.node, member.devices, {job.id(), member.worker_id});
  }
  for (const v1::RankReport& report : stored.progress.held_reports()) RestoreReport(job, report);
  for (int i = 0; i < job.record.incidents_size(); ++i) {
    if (job.record.incidents(i).closed()) continue;
    job.open_incident = i;
    job.counted_epoch = job.record.incidents(i).from_job_epoch();
    job.incident_began =
        context.now.steady - (context.now.wall - FromTimestamp(job.record.incidents(i).time()));
  }
  job.last_advance = context.now.steady;
  ResumeStage(job, stored.progress, context);
}

/// Formed arrangements train on undisturbed. What was under way gets a new job_epoch: its
/// rendezvous is gone with the old process, and who has heard of it is not known.
void Core::ResumeStage(Job& job, const v1::JobProgress& progress, Context& context) {
  const uint32_t epoch = job.arrangement.job_epoch();
  const bool decided = !job.arrangement.starts().empty();
  if (progress.parking().released()) {
    job.stage = Stage::kReleasing;
  } else if (decided && progress.formed_epoch() == epoch) {
    job.stage = Stage::kTraining;
    std::vector<std::string> workers;
    for (Member& member : job.members) {
      const auto& finished = progress.finished_workers();
      if (std::ranges::find(finished, member.worker_id) != finished.end()) {
        member.phase = MemberPhase::kFinished;
      }
      workers.push_back(member.worker_id);
    }
    rendezvous_.Open(job.id(), epoch, workers);
    MoveProgressLimit(job, context);
    if (progress.has_parking()) AskToYield(job, context);
  } else if (job.record.job_epoch() == 0) {
    job.stage = Stage::kCollecting;  // nobody was assigned yet
    rendezvous_.Fence(job.id(), epoch);
  } else {
    BeginCollection(job, context);
  }
  spdlog::info("event=job_resumed job={} state={} job_epoch={} preparing={}", job.id(),
               StateWord(job.record.state()), job.record.job_epoch(), job.arrangement.job_epoch());
}

}  // namespace tundish::jobs
