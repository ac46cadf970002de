// A rank dies at every point of a step; the weights at the end are those of a run without deaths.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <optional>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/trainer/sums.h"

namespace tundish::testing {
namespace {

using trainer::StepPoint;

constexpr uint32_t kStep = 5;

bool HoldsAfter(const Rank& rank, uint32_t step) {
  const v1::Stopped& at = rank.standing;
  return !rank.killed && at.has_state() &&
         (at.step() == step || (at.step() + 1 == step && at.phase() == v1::REDUCED));
}

// Sums for committing step `cut` - 1: those of a rank that did, else put together from the slots.
v1::StepSums SumsFor(Cluster& cluster, uint32_t cut) {
  v1::StepSums sums;
  for (const auto& rank : cluster.ranks()) {
    if (rank->killed) continue;
    if (rank->standing.step() == cut) return rank->standing.committed_sums();
    if (rank->standing.phase() != v1::REDUCED) continue;
    const v1::StepSums& own = rank->standing.sums();
    if (sums.norm_known_size() == 0) {
      sums = own;
    } else {
      sums.set_norm_squared_bits(rank->tp, own.norm_squared_bits(rank->tp));
      sums.set_norm_known(rank->tp, true);
    }
  }
  return sums;
}

// The cut of docs/recovery.md: the largest step that every column can come to.
uint32_t DecideCut(Cluster& cluster, int tensor, int data) {
  for (const uint32_t cut : {kStep + 1, kStep}) {
    bool everywhere = true;
    for (int tp = 0; tp < tensor; ++tp) {
      bool held = false;
      for (int dp = 0; dp < data; ++dp) held = held || HoldsAfter(cluster.rank(dp, tp), cut);
      everywhere = everywhere && held;
    }
    if (everywhere) return cut;
  }
  ADD_FAILURE() << "no cut";
  return 0;
}

// Gives every rank its start point for `cut`; the killed ones are new processes.
void PlanRestart(Cluster& cluster, uint32_t cut, int tensor, int data) {
  const v1::StepSums sums = SumsFor(cluster, cut);
  for (int tp = 0; tp < tensor; ++tp) {
    int holder = -1;
    for (int dp = data - 1; dp >= 0; --dp) {
      if (HoldsAfter(cluster.rank(dp, tp), cut)) holder = dp;
    }
    std::vector<int> receivers;
    for (int dp = 0; dp < data; ++dp) {
      Rank& rank = cluster.rank(dp, tp);
      const bool holds = HoldsAfter(rank, cut);
      if (rank.killed) cluster.Replace(rank);
      rank.start.Clear();
      rank.start.set_step(cut);
      if (!holds) {
        rank.start.mutable_receive()->set_dp(holder);
        receivers.push_back(dp);
      } else if (rank.standing.step() == cut) {
        rank.start.mutable_keep();
      } else {
        *rank.start.mutable_commit() = sums;
      }
    }
    for (const int dp : receivers) cluster.rank(holder, tp).start.add_send_to_dp(dp);
  }
}

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() { WriteTinyImages(images_.path(), 16); }

  v1::JobSpec Spec(int tensor, int data) const {
    v1::JobSpec spec = TinySpec(images_.path(), tensor, data);
    spec.mutable_training()->set_steps(8);
    spec.mutable_checkpoints()->set_every_steps(kStep + 1);
    // Replicas are compared right after kStep: who dies once it is committed dies in that.
    spec.mutable_training()->set_check_replicas_every_steps(kStep + 1);
    return spec;
  }

  std::vector<std::vector<float>> Undisturbed(int tensor, int data) {
    Cluster cluster(Spec(tensor, data), artifacts_.path());
    cluster.Run(1);
    return States(cluster);
  }

  static std::vector<std::vector<float>> States(Cluster& cluster) {
    std::vector<std::vector<float>> states;
    for (const auto& rank : cluster.ranks()) {
      EXPECT_EQ(rank->error, "") << "rank dp " << rank->dp << " tp " << rank->tp;
      states.push_back(Cluster::State(*rank));
    }
    return states;
  }

  const TemporaryFolder images_;
  const TemporaryFolder artifacts_;
};

struct Hold {
  int dp;
  int tp;
  StepPoint point;
};

struct Case {
  const char* name;
  StepPoint dies_at;                 ///< Rank (0, 0), in step kStep.
  std::vector<Hold> holds;           ///< Ranks that come no further than this in step kStep.
  bool waits_for_neighbour;          ///< Rank (0, 1) has committed before (0, 0) dies.
  std::optional<uint32_t> want_cut;  ///< Unset where it depends on timing.
};

TEST_F(RecoveryTest, NoStepIsLostWhereverARankDies) {
  const std::vector<std::vector<float>> want = Undisturbed(2, 2);
  const Case cases[] = {
      {"in forward", StepPoint::kFetched, {}, false, kStep},
      {"in backward", StepPoint::kForwardDone, {}, false, kStep},
      {"own gradients reduced", StepPoint::kBackwardDone, {}, false, {}},
      {"reduced", StepPoint::kReduced, {}, false, {}},
      {"row knows", StepPoint::kShared, {}, false, {}},
      {"committed", StepPoint::kCommitted, {}, false, {}},
      {"forward, sums put together from slots",
       StepPoint::kReduced,
       {{0, 1, StepPoint::kReduced}, {1, 0, StepPoint::kReduced}, {1, 1, StepPoint::kReduced}},
       false,
       {}},
      {"forward, sums from a rank that committed",
       StepPoint::kCommitted,
       {{1, 0, StepPoint::kReduced}, {1, 1, StepPoint::kReduced}},
       true,
       kStep + 1},
      {"back, a committed rank receives",
       StepPoint::kCommitted,
       {{1, 0, StepPoint::kControlSummed}},
       true,
       kStep},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Cluster cluster(Spec(2, 2), artifacts_.path());
    std::mutex mutex;
    std::condition_variable changed;
    bool neighbour_committed = false;
    for (const Hold& hold : c.holds) {
      cluster.rank(hold.dp, hold.tp).recorder->at_point = [&](StepPoint point, uint32_t step) {
        if (step == kStep && point == hold.point) cluster.HoldUntilDeath();
      };
    }
    if (c.waits_for_neighbour) {
      cluster.rank(0, 1).recorder->at_point = [&](StepPoint point, uint32_t step) {
        if (step != kStep || point != StepPoint::kCommitted) return;
        const std::lock_guard lock(mutex);
        neighbour_committed = true;
        changed.notify_all();
      };
    }
    cluster.rank(0, 0).recorder->at_point = [&](StepPoint point, uint32_t step) {
      if (step != kStep || point != c.dies_at) return;
      if (c.waits_for_neighbour) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return neighbour_committed; });
      }
      throw Killed();
    };
    cluster.Run(1);
    for (const auto& rank : cluster.ranks()) {
      ASSERT_NE(rank->error, "") << "a survivor went on";
      rank->recorder->at_point = nullptr;
    }
    const uint32_t cut = DecideCut(cluster, 2, 2);
    ASSERT_EQ(cut, c.want_cut.value_or(cut));
    PlanRestart(cluster, cut, 2, 2);
    cluster.Run(2);
    EXPECT_TRUE(States(cluster) == want) << "cut at " << cut;
    for (const auto& rank : cluster.ranks()) {
      for (const v1::StepDone& step : rank->recorder->steps) {
        EXPECT_EQ(step.time().dp(), rank->dp);
        EXPECT_EQ(step.time().tp(), rank->tp);
        EXPECT_GT(step.time().forward_seconds(), 0) << "step " << step.step();
        EXPECT_GT(step.time().exposed_reduce_seconds(), 0) << "step " << step.step();
        EXPECT_GT(step.time().step_seconds(), step.time().commit_seconds());
        EXPECT_GT(step.memory_bytes(), 0U) << "step " << step.step();
      }
    }
    for (const int tp : {0, 1}) {
      // Due at the forward cut, reached by keep, commit and receive alike.
      const std::vector<v1::CheckpointWritten>& written = cluster.rank(0, tp).recorder->checkpoints;
      ASSERT_FALSE(written.empty()) << "tp " << tp;
      EXPECT_EQ(written.back().path(), fmt::format("job/checkpoints/e2-step{}", kStep + 1));
      EXPECT_EQ(written.back().shard(), fmt::format("shard-tp{}.safetensors", tp));
    }
  }
}

// A step that is not finite is computed once more to find out why, without its gradients being
// kept.
TEST_F(RecoveryTest, ADeathInTheSearchForABadTensorPassesTheStepOverAllTheSame) {
  v1::JobSpec spec = Spec(2, 2);
  spec.mutable_training()->set_on_non_finite(v1::SKIP_STEP);
  spec.mutable_training()->set_max_skipped_steps(1);
  const auto scale = [](Rank& rank, float factor) {
    for (const model::Parameter& parameter : rank.trainer->shard()->model.arena().parameters()) {
      if (parameter.spec.name == "blocks.1.mlp.fc1.weight") parameter.value.detach().mul_(factor);
    }
  };
  const auto overflow = [&](Rank& rank, StepPoint point, uint32_t step) {
    if (step != kStep) return;
    if (point == StepPoint::kFetched) scale(rank, 0x1p127F);
    if (point == StepPoint::kCommitted) scale(rank, 0x1p-127F);
  };
  Cluster undisturbed(spec, artifacts_.path());
  Rank& bad = undisturbed.rank(1, 0);
  bad.recorder->at_point = [&](StepPoint point, uint32_t step) { overflow(bad, point, step); };
  undisturbed.Run(1);
  const auto want = States(undisturbed);
  EXPECT_EQ(bad.trainer->shard()->updates, 7);

  Cluster cluster(spec, artifacts_.path());
  std::promise<void> shared;
  cluster.rank(1, 0).recorder->at_point = [&](StepPoint point, uint32_t step) {
    overflow(cluster.rank(1, 0), point, step);
    if (step == kStep && point == StepPoint::kShared) shared.set_value();
  };
  cluster.rank(0, 0).recorder->at_point = [&](StepPoint point, uint32_t step) {
    if (step != kStep || point != StepPoint::kShared) return;
    shared.get_future().wait();
    throw Killed();
  };
  cluster.Run(1);
  for (const auto& rank : cluster.ranks()) rank->recorder->at_point = nullptr;
  scale(cluster.rank(1, 0), 0x1p-127F);
  const uint32_t cut = DecideCut(cluster, 2, 2);
  EXPECT_EQ(cut, kStep + 1);
  PlanRestart(cluster, cut, 2, 2);
  cluster.Run(2);
  EXPECT_TRUE(States(cluster) == want);
  for (const auto& rank : cluster.ranks()) EXPECT_EQ(rank->trainer->shard()->updates, 7);
}

TEST_F(RecoveryTest, ThreeReplicasKeepTheOrderOfAdditions) {
  const std::vector<std::vector<float>> want = Undisturbed(1, 3);
  Cluster cluster(Spec(1, 3), artifacts_.path());
  cluster.rank(1, 0).recorder->at_point = [&](StepPoint point, uint32_t step) {
    if (step == kStep && point == StepPoint::kBackwardDone) throw Killed();
  };
  cluster.Run(1);
  PlanRestart(cluster, DecideCut(cluster, 1, 3), 1, 3);
  cluster.Run(2);
  EXPECT_TRUE(States(cluster) == want);
}

TEST_F(RecoveryTest, ARankAbortedWhileReceivingKeepsNothingHalf) {
  Cluster cluster(Spec(1, 2), artifacts_.path());
  cluster.rank(0, 0).recorder->at_point = [&](StepPoint point, uint32_t step) {
    if (step == kStep && point == StepPoint::kFetched) throw Killed();
  };
  cluster.Run(1);
  Rank& replacement = cluster.rank(0, 0);
  cluster.Replace(replacement);
  replacement.start.Clear();
  replacement.start.set_step(kStep);
  replacement.start.mutable_receive()->set_dp(1);
  // The holder cannot start from what it was told, and leaves without sending.
  Rank& holder = cluster.rank(1, 0);
  holder.start.Clear();
  holder.start.set_step(kStep + 3);
  holder.start.mutable_keep();
  replacement.recorder->at_point = nullptr;
  cluster.Run(2);
  EXPECT_NE(holder.error, "");
  EXPECT_FALSE(replacement.trainer->Standing().has_state());
}

TEST_F(RecoveryTest, ContinuesFromACheckpointAtAnyDegree) {
  v1::JobSpec spec = TinySpec(images_.path(), 2, 1);
  Cluster whole(spec, artifacts_.path());
  whole.Run(1);
  const auto want = States(whole);
  ASSERT_FALSE(whole.rank(0, 0).recorder->checkpoints.empty());
  const v1::CheckpointWritten written = whole.rank(0, 0).recorder->checkpoints.front();
  EXPECT_EQ(written.step(), 10U);
  EXPECT_EQ(written.path(), "job/checkpoints/e1-step10");

  const auto resume = [&](int tensor, int data, uint32_t epoch) {
    auto cluster =
        std::make_unique<Cluster>(TinySpec(images_.path(), tensor, data), artifacts_.path());
    for (const auto& rank : cluster->ranks()) {
      rank->start.Clear();
      rank->start.set_step(10);
      rank->start.mutable_checkpoint()->set_path(written.path());
    }
    cluster->Run(epoch);
    return cluster;
  };
  const auto same = resume(2, 1, 2);
  EXPECT_TRUE(States(*same) == want);
  const auto other = resume(1, 2, 3);
  ASSERT_EQ(other->rank(0, 0).error, "");
  const v1::StepDone& last = other->rank(0, 0).recorder->steps.back();
  EXPECT_NEAR(last.loss(), whole.rank(0, 0).recorder->steps.back().loss(), 2e-5);
}

TEST_F(RecoveryTest, WhoeverHearsOfAYieldAllStopAfterTheSameStepAndGoOnFromWhatTheyWrote) {
  const std::vector<std::vector<float>> want = Undisturbed(2, 2);
  Cluster cluster(Spec(2, 2), artifacts_.path());
  // One rank hears of it, too late for its own contribution to this step: the next one it is.
  Rank& hears = cluster.rank(1, 1);
  hears.recorder->at_point = [&hears](StepPoint point, uint32_t step) {
    if (step == 2 && point == StepPoint::kReduced) hears.arrangement->RequestYield();
  };
  cluster.Run(1);
  for (const auto& rank : cluster.ranks()) {
    EXPECT_EQ(rank->error, "");
    const v1::Stopped standing = rank->trainer->Standing();
    EXPECT_EQ(standing.step(), 4U);
    EXPECT_EQ(standing.phase(), v1::COMPUTING);
    EXPECT_TRUE(rank->recorder->finished.empty());
  }
  v1::Save save;
  save.mutable_start()->set_step(4);
  save.mutable_start()->mutable_keep();
  save.set_artifact_root(artifacts_.path());
  save.set_job_folder("parked");
  EXPECT_TRUE(cluster.rank(0, 0).trainer->Save(save, 2));
  EXPECT_TRUE(cluster.rank(1, 1).trainer->Save(save, 2)) << "any holder of the column will do";
  save.mutable_start()->set_step(5);
  EXPECT_THROW(cluster.rank(0, 1).trainer->Save(save, 2), std::exception) << "not its state";
  save.mutable_start()->set_step(4);
  save.set_artifact_root("/proc/nowhere");
  EXPECT_FALSE(cluster.rank(0, 1).trainer->Save(save, 2));

  Cluster later(Spec(2, 2), artifacts_.path());
  for (const auto& rank : later.ranks()) {
    rank->start.Clear();
    rank->start.set_step(4);
    rank->start.mutable_checkpoint()->set_path("parked/checkpoints/e2-step4");
  }
  later.Run(3);
  EXPECT_TRUE(States(later) == want);
}

TEST_F(RecoveryTest, FewerReplicasGoOnAndMoreJoinAtAStepsEnd) {
  // Three replicas, then two, then three again, of one global batch.
  Cluster three(Spec(1, 3), artifacts_.path());
  three.rank(2, 0).recorder->at_point = [](StepPoint point, uint32_t step) {
    if (step == 3 && point == StepPoint::kFetched) throw Killed();
  };
  three.Run(1);
  ASSERT_EQ(three.rank(0, 0).standing.step(), 3U);

  Cluster two(Spec(1, 2), artifacts_.path());
  for (int dp = 0; dp < 2; ++dp) {
    two.rank(dp, 0).trainer = std::move(three.rank(dp, 0).trainer);
    two.rank(dp, 0).start.Clear();
    two.rank(dp, 0).start.set_step(3);
    two.rank(dp, 0).start.mutable_keep();
  }
  Recorder& survivor = *three.rank(0, 0).recorder;
  survivor.at_point = [&](StepPoint point, uint32_t step) {
    if (step == 4 && point == StepPoint::kFetched) two.rank(0, 0).arrangement->RequestYield();
  };
  two.Run(2);
  ASSERT_EQ(two.rank(1, 0).trainer->Standing().step(), 5U);
  survivor.at_point = nullptr;

  Cluster again(Spec(1, 3), artifacts_.path());
  for (int dp = 0; dp < 2; ++dp) {
    again.rank(dp, 0).trainer = std::move(two.rank(dp, 0).trainer);
    again.rank(dp, 0).start = two.rank(dp, 0).start;
    again.rank(dp, 0).start.set_step(5);
  }
  again.rank(0, 0).start.add_send_to_dp(2);
  again.rank(2, 0).start.Clear();
  again.rank(2, 0).start.set_step(5);
  again.rank(2, 0).start.mutable_receive()->set_dp(0);
  again.Run(3);
  const std::vector<std::vector<float>> states = States(again);
  EXPECT_TRUE(states[0] == states[1] && states[1] == states[2]);
  // The same samples in every step: only the order of additions differs.
  const std::vector<std::vector<float>> want = Undisturbed(1, 3);
  double farthest = 0;
  for (size_t i = 0; i < want[0].size(); ++i) {
    farthest = std::max<double>(farthest, std::abs(states[0][i] - want[0][i]));
  }
  EXPECT_LT(farthest, 1e-4);
}

}  // namespace
}  // namespace tundish::testing
