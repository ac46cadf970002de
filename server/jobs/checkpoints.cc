#include "server/jobs/checkpoints.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace tundish::jobs {
namespace {

bool IsUsable(const v1::CheckpointRecord& record) {
  return record.artifact().damage().empty();
}

bool IsRecorded(const Job& job, const std::string& folder) {
  return std::ranges::any_of(job.checkpoints, [&folder](const v1::CheckpointRecord& record) {
    return record.artifact().path() == folder;
  });
}

void Condemn(Job& job, const std::string& folder, std::string_view why, Context& context) {
  spdlog::info("event=checkpoint_dropped job={} folder={} reason={}", job.id(), folder, why);
  job.shards.erase(folder);
  context.changes.TouchProgress(job);  // it holds the shards reported so far
  context.changes.obsolete_folders.push_back(folder);
}

/// Condemns what was begun for steps in [first, last].
void CondemnBegun(Job& job, uint32_t first, uint32_t last, std::string_view why, Context& context) {
  std::vector<std::string> folders;
  for (const auto& [folder, reports] : job.shards) {
    const uint32_t step = reports.begin()->second.checkpoint().step();
    if (step >= first && step <= last) folders.push_back(folder);
  }
  for (const std::string& folder : folders) Condemn(job, folder, why, context);
}

/// Keeps the newest `keep_last` usable checkpoints; what is older than them may go.
void Prune(Job& job, Context& context) {
  const auto keep =
      static_cast<std::ptrdiff_t>(std::max<uint32_t>(1, job.spec().checkpoints().keep_last()));
  while (std::ranges::count_if(job.checkpoints, IsUsable) > keep) {
    const v1::Artifact& oldest = job.checkpoints.front().artifact();
    context.changes.writes.DeleteCheckpoint(job.id(), oldest.step());
    context.changes.obsolete_folders.push_back(oldest.path());
    job.checkpoints.erase(job.checkpoints.begin());
  }
}

/// In the place of another checkpoint of the same step, whose folder may go then.
void Record(Job& job, const v1::CheckpointRecord& record, Context& context) {
  const v1::Artifact& artifact = record.artifact();
  std::erase_if(job.checkpoints, [&](const v1::CheckpointRecord& other) {
    if (other.artifact().step() != artifact.step()) return false;
    if (other.artifact().path() != artifact.path()) {
      context.changes.obsolete_folders.push_back(other.artifact().path());
    }
    return true;
  });
  const auto place = std::ranges::upper_bound(
      job.checkpoints, artifact.step(), {},
      [](const v1::CheckpointRecord& other) { return other.artifact().step(); });
  job.checkpoints.insert(place, record);
  context.changes.writes.PutCheckpoint(record);
}

void Publish(Job& job, const std::string& folder, const StepReports& reports, Context& context) {
  v1::CheckpointRecord record;
  record.set_job_id(job.id());
  record.set_job_epoch(reports.begin()->second.job_epoch());
  *record.mutable_time() = ToTimestamp(context.now.wall);
  v1::Artifact* artifact = record.mutable_artifact();
  artifact->set_kind("checkpoint");
  artifact->set_path(folder);
  artifact->set_step(reports.begin()->second.checkpoint().step());
  uint64_t bytes = 0;
  for (const auto& [tp, report] : reports) {
    bytes += report.checkpoint().bytes();
    v1::CheckpointShard& shard = *record.add_shards();
    shard.set_file(report.checkpoint().shard());
    shard.set_bytes(report.checkpoint().bytes());
    shard.set_sha256(report.checkpoint().sha256());
  }
  artifact->set_bytes(bytes);
  if (reports.size() == 1) artifact->set_sha256(reports.begin()->second.checkpoint().sha256());
  Record(job, record, context);
  v1::JobEvent event;
  event.set_type("checkpoint");
  event.set_reason("all_shards_durable");
  event.set_message(fmt::format("state after {} steps is in {}", artifact->step(), folder));
  *event.mutable_artifact() = record.artifact();
  Emit(job, std::move(event), context.now, context.changes);
  CondemnBegun(job, 0, artifact->step(), "superseded", context);
  Prune(job, context);
}

}  // namespace

bool Counts(const Job& job, uint32_t job_epoch, uint32_t steps) {
  if (job_epoch == job.record.job_epoch()) return true;
  const auto cut = job.cuts.find(job_epoch);
  return cut != job.cuts.end() && steps <= cut->second;
}

void OnShardWritten(Job& job, const Member& member, const v1::RankReport& report,
                    Context& context) {
  const v1::CheckpointWritten& written = report.checkpoint();
  if (IsRecorded(job, written.path())) return;
  // Shards that survivors write at a cut carry the number that is in preparation.
  const bool counts =
      Counts(job, report.job_epoch(), written.step()) ||
      (member.phase == MemberPhase::kSaving && report.job_epoch() == job.arrangement.job_epoch());
  if (!counts) return Condemn(job, written.path(), "of_an_abandoned_course", context);
  const v1::CheckpointRecord* newest = NewestUsable(job);
  if (newest != nullptr && newest->artifact().step() >= written.step()) {
    return Condemn(job, written.path(), "superseded", context);
  }
  StepReports& shards = job.shards[written.path()];
  shards[member.tp] = report;
  if (std::ssize(shards) < job.tensor()) return;
  const auto complete = job.shards.extract(written.path());
  Publish(job, complete.key(), complete.mapped(), context);
}

const v1::CheckpointRecord* NewestUsable(const Job& job) {
  for (auto record = job.checkpoints.rbegin(); record != job.checkpoints.rend(); ++record) {
    if (IsUsable(*record)) return &*record;
  }
  return nullptr;
}

void MarkDamaged(Job& job, const std::string& folder, const std::string& damage, Context& context) {
  for (v1::CheckpointRecord& record : job.checkpoints) {
    if (record.artifact().path() != folder || !IsUsable(record)) continue;
    record.mutable_artifact()->set_damage(damage.empty() ? "unreadable" : damage);
    context.changes.writes.PutCheckpoint(record);
    v1::JobEvent event;
    event.set_type("checkpoint_damaged");
    event.set_reason("checkpoint_unreadable");
    event.set_message(fmt::format("the checkpoint of step {} cannot be used: {}",
                                  record.artifact().step(), record.artifact().damage()));
    *event.mutable_artifact() = record.artifact();
    Emit(job, std::move(event), context.now, context.changes);
  }
}

void DropBegunAfter(Job& job, uint32_t cut, Context& context) {
  CondemnBegun(job, cut + 1, UINT32_MAX, "of_an_abandoned_course", context);
}

void SweepCheckpoints(Job& job, Context& context) {
  CondemnBegun(job, 0, UINT32_MAX, "never_complete", context);
  Sweep sweep{.folder = job.id() + "/checkpoints"};
  for (const v1::CheckpointRecord& record : job.checkpoints) {
    const std::string& path = record.artifact().path();
    sweep.keep.push_back(path.substr(path.rfind('/') + 1));
  }
  context.changes.sweeps.push_back(std::move(sweep));
}

}  // namespace tundish::jobs
