#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/job.h"
#include "server/jobs/settings.h"

namespace tundish::jobs {

/// A checkpoint or model that has to go for its tenant to be within the budget.
struct SurplusArtifact {
  std::string job_id;
  std::string tenant;
  v1::Artifact artifact;
  /// Folder below the artifact root that holds nothing else.
  std::string folder;
};

/// Which artifacts go: of each tenant whose recorded bytes are above its budget as many as it takes,
/// checkpoints of ended jobs first, oldest job first, then models. Never anything of a job that has
/// not ended, nor a folder such a job reads (model.weights, data), nor the newest model of a job name:
/// a tenant may stay above its budget for these. Pure.
std::vector<SurplusArtifact> FindSurplus(const std::map<std::string, std::unique_ptr<Job>>& jobs,
                                         const Settings& settings);

/// Takes the artifact out of the job's record.
void ForgetArtifact(Job& job, const SurplusArtifact& surplus, Now now, Changes& changes);

}  // namespace tundish::jobs
