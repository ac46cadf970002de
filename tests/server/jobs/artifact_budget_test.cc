#include "server/jobs/artifact_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::jobs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Jobs are made in the order of their ids.
class ArtifactBudgetTest : public testing::Test {
 protected:
  Job& Add(const std::string& id, const std::string& name, bool ended,
           const std::string& tenant = "t") {
    Job& job = *(jobs_[id] = std::make_unique<Job>());
    job.record.set_job_id(id);
    job.record.mutable_spec()->set_name(name);
    job.record.mutable_spec()->set_tenant(tenant);
    job.stage = ended ? Stage::kEnded : Stage::kTraining;
    v1::Artifact& checkpoint = *job.checkpoints.emplace_back().mutable_artifact();
    checkpoint.set_kind("checkpoint");
    checkpoint.set_path(id + "/checkpoints/10");
    checkpoint.set_bytes(100);
    if (!ended) return job;
    v1::Artifact& model = *job.record.add_artifacts();
    model.set_kind("model");
    model.set_path(id + "/export/1/model.safetensors");
    model.set_bytes(50);
    return job;
  }

  std::vector<std::string> Folders() {
    std::vector<std::string> folders;
    for (const SurplusArtifact& each : FindSurplus(jobs_, settings_)) folders.push_back(each.folder);
    return folders;
  }

  std::map<std::string, std::unique_ptr<Job>> jobs_;
  Settings settings_{.artifact_root = "/artifacts", .artifact_budget = 200};
};

TEST_F(ArtifactBudgetTest, TheOldestCheckpointsGoFirstThenModelsButTheNewest) {
  Add("A", "weekly", true);
  Add("B", "weekly", true);
  Add("C", "weekly", true);
  settings_.artifact_budget = 450;
  EXPECT_THAT(Folders(), IsEmpty());
  settings_.artifact_budget = 449;
  EXPECT_THAT(Folders(), ElementsAre("A/checkpoints/10"));
  settings_.artifact_budget = 149;
  EXPECT_THAT(Folders(), ElementsAre("A/checkpoints/10", "B/checkpoints/10", "C/checkpoints/10",
                                     "A/export/1"));
  settings_.artifact_budget = 1;
  EXPECT_THAT(Folders(), ElementsAre("A/checkpoints/10", "B/checkpoints/10", "C/checkpoints/10",
                                     "A/export/1", "B/export/1"));
  settings_.artifact_budget = 0;
  EXPECT_THAT(Folders(), IsEmpty()) << "no budget";
}

TEST_F(ArtifactBudgetTest, WhatARunningJobNeedsStays) {
  Add("A", "weekly", true);
  Add("B", "weekly", true);
  Job& running = Add("C", "other", false);
  running.record.mutable_spec()->mutable_model()->set_weights(
      "/artifacts/A/export/1/model.safetensors");
  settings_.artifact_budget = 1;
  EXPECT_THAT(Folders(), ElementsAre("A/checkpoints/10", "B/checkpoints/10"));
  Member& member = jobs_["A"]->members.emplace_back();
  member.worker_id = "still there";
  EXPECT_THAT(Folders(), ElementsAre("B/checkpoints/10"));
}

TEST_F(ArtifactBudgetTest, EachTenantHasItsOwn) {
  Add("A", "weekly", true, "rich");
  Add("B", "weekly", true, "poor");
  settings_.artifact_budget = 1000;
  settings_.artifact_budgets["poor"] = 60;
  EXPECT_THAT(Folders(), ElementsAre("B/checkpoints/10"));
}

TEST_F(ArtifactBudgetTest, WhatGoesLeavesTheRecord) {
  Job& job = Add("A", "weekly", true);
  Add("B", "weekly", true);
  settings_.artifact_budget = 60;
  Changes changes;
  for (const SurplusArtifact& each : FindSurplus(jobs_, settings_)) {
    ForgetArtifact(*jobs_.at(each.job_id), each, {}, changes);
  }
  EXPECT_TRUE(job.checkpoints.empty());
  EXPECT_TRUE(job.record.artifacts().empty());
  EXPECT_EQ(jobs_["B"]->record.artifacts_size(), 1);
  EXPECT_EQ(changes.obsolete_folders.size(), 3u);
  EXPECT_THAT(Folders(), IsEmpty());
}

}  // namespace
}  // namespace tundish::jobs
