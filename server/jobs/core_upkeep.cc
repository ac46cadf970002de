#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/artifact_budget.h"
#include "server/jobs/core.h"

// What the core does about itself: room on the disk, old state, nodes that are gone for good.
namespace tundish::jobs {
namespace {

constexpr std::chrono::minutes kBetweenArtifactChecks{1};

}  // namespace

void Core::TickOncePerSecond(Context& context) {
  if (parts_.observer != nullptr) {
    parts_.observer->OnTick(jobs_, nodes_, committer_, context.now);
  }
  if (parts_.free_bytes) {
    const uint64_t free = parts_.free_bytes();
    const bool room = free >= parts_.settings.reserve_bytes;
    if (room != room_.ok()) {
      spdlog::log(room ? spdlog::level::info : spdlog::level::err,
                  "event=disk_room enough={} free_bytes={} reserve_bytes={}", room, free,
                  parts_.settings.reserve_bytes);
    }
    room_ = room ? absl::OkStatus()
                 : absl::UnavailableError(fmt::format(
                       "the coordinator's disk has {} bytes free and keeps {} for the jobs that "
                       "run; make room, then try again",
                       free, parts_.settings.reserve_bytes));
  }
  ForgetNodes(context);
  CheckLinks(context);
  if (context.now.steady >= next_artifact_check_) {
    next_artifact_check_ = context.now.steady + kBetweenArtifactChecks;
    for (const SurplusArtifact& surplus : FindSurplus(jobs_, parts_.settings)) {
      spdlog::info("event=artifact_removed job={} tenant={} path=\"{}\" reason=storage_budget",
                   surplus.job_id, surplus.tenant, surplus.artifact.path());
      ForgetArtifact(*jobs_.at(surplus.job_id), surplus, context.now, context.changes);
    }
  }
}

/// Hosts that come and go under new names must not fill the table.
void Core::ForgetNodes(Context& context) {
  std::vector<std::string> gone;
  for (const auto& [name, node] : nodes_.nodes()) {
    const bool silent =
        node.link == nullptr &&
        context.now.wall - node.last_heard_wall > parts_.settings.forget_node_after &&
        context.now.steady - node.last_heard > parts_.settings.lost_after;
    if (silent && !node.drained && node.occupied.empty()) gone.push_back(name);
  }
  for (const std::string& name : gone) {
    spdlog::info("event=node_forgotten node={}", name);
    nodes_.nodes().erase(name);
    context.changes.writes.DeleteNode(name);
  }
}

/// One piece of old state at a time; while the disk fails, none.
void Core::Retain(Now now) {
  if (closed_ || retaining_ || !committer_.health().ok()) return;
  // Called on the store's thread, perhaps after the core is gone.
  const auto back_on_loop = [loop = parts_.loop, alive = std::weak_ptr<bool>(alive_)](auto act) {
    boost::asio::post(loop, [alive, act = std::move(act)] {
      if (!alive.expired()) act();
    });
  };
  if (now.wall >= next_audit_retention_) {
    retaining_ = true;
    next_audit_retention_ = now.wall + std::chrono::hours(1);
    parts_.store.RemoveAudit(now.wall - parts_.settings.keep_audit,
                             [this, back_on_loop](const absl::Status&) {
                               back_on_loop([this] { retaining_ = false; });
                             });
    return;
  }
  const std::optional<RetentionTask> task = retention_.Next(jobs_, now, parts_.settings);
  if (!task) return;
  retaining_ = true;
  if (task->kind == RetentionTask::Kind::kRemove) {
    parts_.store.RemoveJob(task->job_id, [this, back_on_loop, task](const absl::Status& status) {
      back_on_loop([this, task, status] {
        OnRetained(*task,
                   status.ok() ? absl::StatusOr<store::PruneResult>(store::PruneResult()) : status);
      });
    });
    return;
  }
  parts_.store.PruneUpdates(task->prune, [this, back_on_loop, task](store::Store::Pruned result) {
    back_on_loop([this, task, result = std::move(result)] { OnRetained(*task, result); });
  });
}

void Core::OnRetained(const RetentionTask& task, const absl::StatusOr<store::PruneResult>& result) {
  retaining_ = false;
  if (!result.ok()) {
    spdlog::warn("event=retention_failed job={} status=\"{}\"", task.job_id,
                 result.status().ToString());
    return;
  }
  if (task.kind != RetentionTask::Kind::kRemove) {
    if (result->removed > 0) {
      spdlog::info("event=updates_removed job={} count={} reason={}", task.job_id, result->removed,
                   task.prune.reason);
    }
    retention_.OnPruned(task, *result);
    return;
  }
  spdlog::info("event=job_removed job={} reason=retention", task.job_id);
  const auto job = jobs_.find(task.job_id);
  if (job == jobs_.end()) return;
  requests_.erase({job->second->spec().tenant(), job->second->record.request_id()});
  index_.Forget(task.job_id);
  streams_.Forget(task.job_id);
  retention_.OnRemoved(task.job_id);
  jobs_.erase(job);
}

}  // namespace tundish::jobs
