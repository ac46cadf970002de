// Ranks are killed at random points of random steps, several times in a run and now and then two at
// once; what the coordinator's own cut makes of it must end in the weights, and pass through the
// losses, of a run that nobody disturbed, bit for bit.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "server/recovery/cut.h"
#include "tests/worker/engine/trainer/cluster.h"

namespace tundish::testing {
namespace {

using trainer::StepPoint;

constexpr uint32_t kSteps = 12;

int KillsWanted() {
  const char* text = std::getenv("TUNDISH_CHAOS_KILLS");
  return text == nullptr ? 18 : std::atoi(text);
}

struct Shape {
  const char* name;
  int tensor;
  int data;
  std::function<void(v1::JobSpec&)> change;
};

using Losses = std::map<uint32_t, double>;

/// A cluster, what it is killed with, and what has been seen of it.
class Ordeal {
 public:
  Ordeal(const v1::JobSpec& spec, const std::string& artifacts, unsigned seed)
      : tensor_(spec.parallel().tensor()),
        data_(spec.parallel().data()),
        cluster_(spec, artifacts),
        random_(seed) {}

  /// Runs to the end, with at most `kills` deaths on the way.
  void Run(int kills, const Losses& want) {
    for (uint32_t epoch = 1;; ++epoch) {
      kills -= Doom(kills);
      cluster_.Run(epoch);
      Note(want);
      if (std::ranges::all_of(cluster_.ranks(),
                              [](const auto& rank) { return rank->error.empty(); })) {
        return;
      }
      Recover();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  std::vector<std::vector<float>> States() {
    std::vector<std::vector<float>> states;
    for (const auto& rank : cluster_.ranks()) states.push_back(Cluster::State(*rank));
    return states;
  }

  const Losses& losses() const { return losses_; }
  int killed() const { return killed_; }
  int rewound() const { return rewound_; }
  /// Committed at a point → how often somebody died there.
  const std::map<StepPoint, int>& points() const { return points_; }

 private:
  /// Decides who dies next, and where. Returns how many.
  int Doom(int most) {
    for (const auto& rank : cluster_.ranks()) rank->recorder->at_point = nullptr;
    if (most <= 0) return 0;
    const int count = most > 1 && Below(4) == 0 ? 2 : 1;
    for (int i = 0; i < count; ++i) {
      Rank& victim = *cluster_.ranks()[Below(cluster_.ranks().size())];
      // Counted from where the rank begins, so that late deaths happen, too.
      const auto passed = std::make_shared<int>(static_cast<int>(Below(7 * 5)));
      victim.recorder->at_point = [this, passed](StepPoint point, uint32_t) {
        if ((*passed)-- > 0) return;
        const std::lock_guard lock(mutex_);
        ++points_[point];
        throw Killed();
      };
    }
    return count;
  }

  void Note(const Losses& want) {
    for (const auto& rank : cluster_.ranks()) {
      killed_ += rank->killed ? 1 : 0;
      for (const v1::StepDone& step : rank->recorder->steps) {
        losses_[step.step()] = step.loss();
        if (want.empty()) continue;
        EXPECT_EQ(std::bit_cast<uint64_t>(step.loss()),
                  std::bit_cast<uint64_t>(want.at(step.step())))
            << "step " << step.step() << " on rank dp " << rank->dp << " tp " << rank->tp;
      }
      rank->recorder->steps.clear();
    }
  }

  /// What the coordinator does between two arrangements.
  void Recover() {
    recovery::CutInput input{.tensor = tensor_, .data = data_, .known_sums = sums_};
    for (const auto& rank : cluster_.ranks()) {
      input.members.emplace_back();
      if (!rank->killed) input.members.back() = rank->standing;
    }
    const auto cut = recovery::DecideCut(input);
    ASSERT_TRUE(cut.ok()) << cut.status();
    sums_ = cut->sums;
    rewound_ += cut->source == recovery::Source::kSurvivor ? 0 : 1;
    for (size_t slot = 0; slot < cluster_.ranks().size(); ++slot) {
      Rank& rank = *cluster_.ranks()[slot];
      if (rank.killed) cluster_.Replace(rank);
      rank.start = cut->starts[slot];
    }
  }

  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  const int tensor_;
  const int data_;
  Cluster cluster_;
  std::mt19937 random_;
  std::optional<recovery::KnownSums> sums_;
  Losses losses_;
  int killed_ = 0;
  int rewound_ = 0;
  std::mutex mutex_;
  std::map<StepPoint, int> points_;  // Guarded by mutex_ while ranks run.
};

class ChaosTest : public ::testing::TestWithParam<Shape> {
 protected:
  ChaosTest() { WriteTinyImages(images_.path(), 16); }

  const TemporaryFolder images_;
  const TemporaryFolder artifacts_;
};

TEST_P(ChaosTest, NothingOfItShowsInTheResult) {
  const Shape& shape = GetParam();
  v1::JobSpec spec = TinySpec(images_.path(), shape.tensor, shape.data);
  spec.mutable_training()->set_steps(kSteps);
  spec.mutable_checkpoints()->set_every_steps(5);
  if (shape.change) shape.change(spec);
  Ordeal calm(spec, artifacts_.path(), 0);
  calm.Run(0, {});
  const auto want = calm.States();

  const int wanted = (KillsWanted() + 2) / 3;
  int killed = 0;
  int rewound = 0;
  std::map<StepPoint, int> points;
  for (unsigned seed = 1; killed < wanted; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Ordeal ordeal(spec, artifacts_.path(), seed);
    ordeal.Run(6, calm.losses());
    ASSERT_TRUE(ordeal.States() == want) << "the weights show " << ordeal.killed() << " deaths";
    ASSERT_EQ(ordeal.losses().size(), kSteps);
    ASSERT_GT(ordeal.killed(), 0);
    killed += ordeal.killed();
    rewound += ordeal.rewound();
    for (const auto& [point, count] : ordeal.points()) points[point] += count;
  }
  std::string where;
  for (const auto& [point, count] : points)
    where += fmt::format(" {}:{}", static_cast<int>(point), count);
  std::printf("%s: %d deaths, %d returns to the start; by point%s\n", shape.name, killed, rewound,
              where.c_str());
}

INSTANTIATE_TEST_SUITE_P(Shapes, ChaosTest,
                         ::testing::Values(Shape{"2x2", 2, 2, nullptr}, Shape{"1x4", 1, 4, nullptr},
                                           Shape{"4x2", 4, 2, nullptr}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tundish::testing
