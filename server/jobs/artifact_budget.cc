#include "server/jobs/artifact_budget.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tundish::jobs {
namespace {

using Jobs = std::map<std::string, std::unique_ptr<Job>>;

bool Over(const Job& job) {
  return job.ended() && job.members.empty();
}

std::string FolderOf(const v1::Artifact& artifact) {
  if (artifact.kind() == "checkpoint") return artifact.path();
  return artifact.path().substr(0, artifact.path().rfind('/'));
}

/// Absolute paths that jobs which have not ended read from.
std::vector<std::string> PathsInUse(const Jobs& jobs) {
  std::vector<std::string> paths;
  for (const auto& [id, job] : jobs) {
    if (Over(*job)) continue;
    for (const std::string& path :
         {job->spec().model().weights(), job->spec().data().folder(), job->spec().data().manifest()}) {
      if (!path.empty()) paths.push_back(path);
    }
  }
  return paths;
}

/// What may go of a tenant, first things first, and what everything of it takes.
struct Holdings {
  uint64_t bytes = 0;
  std::vector<SurplusArtifact> checkpoints;
  std::vector<SurplusArtifact> models;
};

uint64_t BudgetOf(const std::string& tenant, const Settings& settings) {
  const auto own = settings.artifact_budgets.find(tenant);
  return own == settings.artifact_budgets.end() ? settings.artifact_budget : own->second;
}

}  // namespace

std::vector<SurplusArtifact> FindSurplus(const Jobs& jobs, const Settings& settings) {
  const std::vector<std::string> in_use = PathsInUse(jobs);
  std::map<std::string, Holdings> tenants;
  // Newest first: the first model of a name is the one that stays.
  std::set<std::pair<std::string, std::string>> has_model;
  for (auto entry = jobs.rbegin(); entry != jobs.rend(); ++entry) {
    const Job& job = *entry->second;
    const std::string& tenant = job.spec().tenant();
    Holdings& holdings = tenants[tenant];
    const auto add = [&](const v1::Artifact& artifact, std::vector<SurplusArtifact>& list,
                         bool stays) {
      holdings.bytes += artifact.bytes();
      const std::string folder = FolderOf(artifact);
      const std::string absolute = settings.artifact_root + "/" + folder;
      const bool read = std::ranges::any_of(
          in_use, [&](const std::string& path) { return path.starts_with(absolute); });
      if (Over(job) && !stays && !read && !folder.empty()) {
        list.push_back({job.id(), tenant, artifact, folder});
      }
    };
    for (const v1::CheckpointRecord& checkpoint : job.checkpoints) {
      add(checkpoint.artifact(), holdings.checkpoints, false);
    }
    for (const v1::Artifact& artifact : job.record.artifacts()) {
      const bool newest = Over(job) && has_model.emplace(tenant, job.spec().name()).second;
      add(artifact, holdings.models, newest);
    }
  }
  std::vector<SurplusArtifact> surplus;
  for (auto& [tenant, holdings] : tenants) {
    const uint64_t budget = BudgetOf(tenant, settings);
    if (budget == 0) continue;
    for (auto* list : {&holdings.checkpoints, &holdings.models}) {
      for (auto oldest = list->rbegin(); oldest != list->rend() && holdings.bytes > budget;
           ++oldest) {
        holdings.bytes -= oldest->artifact.bytes();
        surplus.push_back(std::move(*oldest));
      }
    }
  }
  return surplus;
}

void ForgetArtifact(Job& job, const SurplusArtifact& surplus, Now now, Changes& changes) {
  const std::string& path = surplus.artifact.path();
  if (surplus.artifact.kind() == "checkpoint") {
    changes.writes.DeleteCheckpoint(job.id(), surplus.artifact.step());
    std::erase_if(job.checkpoints,
                  [&](const auto& checkpoint) { return checkpoint.artifact().path() == path; });
  } else {
    auto& artifacts = *job.record.mutable_artifacts();
    artifacts.erase(std::remove_if(artifacts.begin(), artifacts.end(),
                                   [&](const auto& artifact) { return artifact.path() == path; }),
                    artifacts.end());
    changes.TouchJob(job);
  }
  changes.obsolete_folders.push_back(surplus.folder);
  v1::AuditRecord audit;
  *audit.mutable_time() = ToTimestamp(now.wall);
  audit.set_actor("coordinator");
  audit.set_action("remove_artifact");
  audit.set_subject(job.id());
  audit.set_outcome("OK " + path + " (storage budget of tenant " + surplus.tenant + ")");
  changes.writes.AppendAudit(audit);
}

}  // namespace tundish::jobs
