#include "server/recovery/cut.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/recovery/rows.h"
#include "tests/server/recovery/reachable.h"

namespace tundish::recovery {
namespace {

/// Made-up but recognisable: the true values of a step.
std::uint32_t Norm(int tp, std::uint32_t step) {
  return 1000 * step + tp + 1;
}
std::uint32_t Loss(std::uint32_t step) {
  return 7000 + step;
}

v1::StepSums AllSums(int tensor, std::uint32_t step) {
  v1::StepSums sums;
  for (int tp = 0; tp < tensor; ++tp) {
    sums.add_norm_squared_bits(Norm(tp, step));
    sums.add_norm_known(true);
  }
  sums.set_loss_sum_bits(Loss(step));
  sums.set_weight_sum_bits(Loss(step) + 1);
  return sums;
}

v1::StepSums OwnSums(int tensor, int own, std::uint32_t step) {
  v1::StepSums sums = AllSums(tensor, step);
  for (int tp = 0; tp < tensor; ++tp) {
    if (tp == own) continue;
    sums.set_norm_squared_bits(tp, 0);
    sums.set_norm_known(tp, false);
  }
  return sums;
}

v1::Stopped Rank(int tensor, int tp, std::uint32_t step, bool reduced, bool committed_here = true) {
  v1::Stopped rank;
  rank.set_step(step);
  rank.set_has_state(true);
  rank.set_phase(reduced ? v1::REDUCED : v1::COMPUTING);
  if (reduced) *rank.mutable_sums() = OwnSums(tensor, tp, step);
  if (committed_here && step > 0) *rank.mutable_committed_sums() = AllSums(tensor, step - 1);
  return rank;
}

/// One letter group per rank, rows separated by spaces: "5" computing step 5, "5r" reduced, "5n" at
/// 5 without having committed here, "5m" reduced and the same, "-" lost, "?" without state.
CutInput Parse(int tensor, int data, const std::string& text) {
  CutInput input{.tensor = tensor, .data = data};
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ' && c != ',') {
      word += c;
      continue;
    }
    const int tp = static_cast<int>(input.members.size()) % tensor;
    if (word == "-") {
      input.members.push_back(std::nullopt);
    } else if (word == "?") {
      input.members.push_back(v1::Stopped());
    } else {
      const bool reduced = word.back() == 'r' || word.back() == 'm';
      const bool committed = word.back() != 'n' && word.back() != 'm';
      input.members.push_back(Rank(tensor, tp, std::stoi(word), reduced, committed));
    }
    word.clear();
  }
  return input;
}

/// "k" keep, "c" commit, "r2" receive from dp 2, "f" fresh, "p" checkpoint; ">1,2" sends.
std::string Show(const Cut& cut) {
  std::string text = fmt::format("{} {}:", SourceName(cut.source), cut.step);
  for (const v1::StartPoint& start : cut.starts) {
    text += ' ';
    switch (start.from_case()) {
      case v1::StartPoint::kKeep:
        text += 'k';
        break;
      case v1::StartPoint::kCommit:
        text += 'c';
        break;
      case v1::StartPoint::kReceive:
        text += fmt::format("r{}", start.receive().dp());
        break;
      case v1::StartPoint::kFresh:
        text += 'f';
        break;
      case v1::StartPoint::kCheckpoint:
        text += 'p';
        break;
      case v1::StartPoint::FROM_NOT_SET:
        text += '!';
    }
    for (int i = 0; i < start.send_to_dp_size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? '>' : ',', start.send_to_dp(i));
    }
  }
  return text;
}

TEST(DecideCutTest, Decides) {
  struct Case {
    const char* name;
    int tensor, data;
    const char* members;
    const char* want;
  };
  const Case cases[] = {
      {"in the middle of forward", 1, 2, "5 -", "survivor 5: k>1 r0"},
      {"reduced: forward cut by its own sums", 1, 2, "5r -", "survivor 6: c>1 r0"},
      {"one reduced, one not", 1, 3, "5r 5 -", "survivor 6: c>1,2 r0 r0"},
      {"committed and reduced", 1, 3, "6 5r -", "survivor 6: k>2 c r0"},
      {"committed and computing", 1, 3, "6 5 -", "survivor 6: k>1,2 r0 r0"},
      {"2 x 2, all computing", 2, 2, "5 5 5 -", "survivor 5: k k>1 k r0"},
      {"2 x 2, tp 1 not reduced: back", 2, 2, "5r 5 5r -", "survivor 5: k k>1 k r0"},
      {"2 x 2, assembled over rows", 2, 2, "5r - 5 5r", "survivor 6: c>1 r1 r0 c>0"},
      {"2 x 2, row 0 committed, its mate's column not reduced", 2, 2, "6 - 5 5",
       "survivor 5: r1 r1 k>0 k>0"},
      {"2 x 2, forward by the committed row", 2, 2, "6 - 5r 5r", "survivor 6: k r1 c c>0"},
      {"first step, nothing committed yet", 2, 2, "0 0 0 -", "survivor 0: k k>1 k r0"},
      {"both rows of a column lost", 2, 2, "5 - 5 -", "start 0: f f f f"},
      {"everybody lost", 2, 1, "- -", "start 0: f f"},
      {"a rank without state receives", 1, 3, "5 ? -", "survivor 5: k>1,2 r0 r0"},
      {"only ranks without state", 1, 2, "? ?", "start 0: f f"},
      {"receivers are spread", 1, 6, "5 - 5 - - -", "survivor 5: k>1,4 r0 k>3,5 r2 r0 r2"},
      {"received state knows no sums, reduced ranks do", 1, 2, "6n 5r", "survivor 6: k c"},
      {"no sums for tp 1's commit: back", 2, 2, "6n 5r 5 -", "survivor 5: r1 k>1 k>0 r0"},
      {"reduced without committing before", 1, 2, "0r -", "survivor 1: c>1 r0"},
      {"reduced after a receive", 2, 1, "5m 5m", "survivor 6: c c"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto cut = DecideCut(Parse(c.tensor, c.data, c.members));
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(Show(*cut), c.want) << cut->reason;
    EXPECT_FALSE(cut->reason.empty());
  }
}

TEST(DecideCutTest, FallsBackToTheCheckpoint) {
  CutInput input = Parse(2, 2, "5 - 5 -");
  input.checkpoint = Checkpoint{4, "jobs/J/checkpoints/1-4"};
  const auto cut = DecideCut(input);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(Show(*cut), "checkpoint 4: p p p p");
  EXPECT_EQ(cut->starts[3].checkpoint().path(), "jobs/J/checkpoints/1-4");
  EXPECT_EQ(cut->starts[3].step(), 4u);
  // Survivors that hold a step win, however new the checkpoint.
  input = Parse(2, 2, "5 5 5 -");
  input.checkpoint = Checkpoint{4, "p"};
  EXPECT_EQ(Show(*DecideCut(input)), "survivor 5: k k>1 k r0");
}

TEST(DecideCutTest, HandsOutTheSumsOfTheCommittedRow) {
  const auto cut = DecideCut(Parse(2, 2, "6 - 5r 5r"));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->starts[2].commit().SerializeAsString(), AllSums(2, 5).SerializeAsString());
  ASSERT_TRUE(cut->sums);
  EXPECT_EQ(cut->sums->step, 5u);
}

TEST(DecideCutTest, AssemblesSumsAndKeepsTheNonFiniteFlag) {
  CutInput input = Parse(3, 2, "5r 5 - - 5r 5r");
  input.members[4]->mutable_sums()->set_nonfinite_bits(std::bit_cast<std::uint32_t>(2.0f));
  const auto cut = DecideCut(input);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(Show(*cut), "survivor 6: c>1 r1 r1 r0 c>0 c>0");
  v1::StepSums want = AllSums(3, 5);
  want.set_nonfinite_bits(std::bit_cast<std::uint32_t>(2.0f));
  EXPECT_EQ(cut->starts[0].commit().SerializeAsString(), want.SerializeAsString());
}

TEST(DecideCutTest, KnownSumsServeAgainWhenAFailureStrikesDuringACut) {
  // (0,0) had committed step 5 and was the only one to know the sums; it died while (0,1) and (1,1)
  // were told to commit with them. (1,0) had received step 6 already.
  CutInput input = Parse(2, 2, "- 5r 6n 5r");
  EXPECT_EQ(DecideCut(input)->source, Source::kStart);
  input.known_sums = KnownSums{5, AllSums(2, 5)};
  const auto cut = DecideCut(input);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(Show(*cut), "survivor 6: r1 c k>0 c");
  EXPECT_EQ(cut->starts[1].commit().SerializeAsString(), AllSums(2, 5).SerializeAsString());
  input.known_sums->step = 4;
  EXPECT_EQ(DecideCut(input)->source, Source::kStart) << "sums of another step are of no use";
}

TEST(DecideCutTest, RefusesWhatDoesNotFit) {
  struct Case {
    CutInput input;
    const char* message;
  };
  Case cases[] = {
      {Parse(2, 2, "5 5 5"), "tensor=2 x data=2 with 3 members"},
      {{.tensor = 0, .data = 0}, "tensor=0 x data=0"},
      {{.tensor = 1 << 30, .data = 1 << 30}, "with 0 members"},
      {Parse(2, 1, "5r 5r"),
       "sums of member 1 have 1 norm slots, 2 marked: expected one per tp, 2"},
  };
  cases[3].input.members[1]->mutable_sums()->mutable_norm_squared_bits()->RemoveLast();
  for (const Case& c : cases) {
    const auto cut = DecideCut(c.input);
    EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(cut.status().message()), testing::HasSubstr(c.message));
  }
}

std::string ShowStandings(const Standings& ranks, int tensor, const std::set<int>& dead) {
  std::string text;
  for (int i = 0; i < std::ssize(ranks); ++i) {
    text += i % tensor == 0 ? " |" : "";
    text += dead.contains(i) ? fmt::format(" ({}{})", ranks[i].step, ranks[i].reduced ? "r" : "")
                             : fmt::format(" {}{}", ranks[i].step, ranks[i].reduced ? "r" : "");
  }
  return text;
}

/// Plays a cut through and checks that every rank ends with the state of `cut.step`, from true
/// sums, with sends and receives that match. Returns the first thing wrong.
std::string CheckCut(const CutInput& input, const Cut& cut) {
  const int tensor = input.tensor;
  std::optional<std::string> true_sums;
  if (cut.step > 0) true_sums = AllSums(tensor, cut.step - 1).SerializeAsString();
  for (int i = 0; i < std::ssize(input.members); ++i) {
    const v1::StartPoint& start = cut.starts[i];
    const auto& member = input.members[i];
    const int dp = i / tensor;
    const int tp = i % tensor;
    if (start.step() != cut.step) return fmt::format("rank {} starts at {}", i, start.step());
    const bool alive = member && member->has_state();
    if (start.has_keep() && !(alive && member->step() == cut.step)) return "keeps what it has not";
    if (start.has_commit()) {
      if (!alive || member->phase() != v1::REDUCED || member->step() + 1 != cut.step) {
        return "commits what it has not reduced";
      }
      if (start.commit().SerializeAsString() != *true_sums) {
        return "commits with wrong sums: " + start.commit().ShortDebugString();
      }
    }
    if (start.has_receive()) {
      const v1::StartPoint& sender = cut.starts[start.receive().dp() * tensor + tp];
      if (!sender.has_keep() && !sender.has_commit()) return "receives from a rank without state";
      if (std::ranges::count(sender.send_to_dp(), dp) != 1) return "nobody sends to a receiver";
    }
    for (const int to : start.send_to_dp()) {
      const v1::StartPoint& receiver = cut.starts[to * tensor + tp];
      if (!receiver.has_receive() || receiver.receive().dp() != dp) return "sends to no receiver";
    }
    if (!std::ranges::is_sorted(start.send_to_dp())) return "sends out of order";
  }
  return "";
}

/// The largest cut by definition, straight from docs/recovery.md.
std::optional<std::uint32_t> LargestCut(const CutInput& input) {
  for (std::uint32_t cut = 12; cut > 0; --cut) {
    bool all = true;
    for (int tp = 0; tp < input.tensor && all; ++tp) {
      bool held = false;
      for (int dp = 0; dp < input.data; ++dp) {
        const auto& member = input.members[dp * input.tensor + tp];
        held |= member && (member->step() == cut ||
                           (member->step() + 1 == cut && member->phase() == v1::REDUCED));
      }
      all = held;
    }
    if (all) return cut;
  }
  return std::nullopt;
}

struct Shape {
  int tensor;
  int data;
};

class ReachableCutTest : public testing::TestWithParam<Shape> {
 protected:
  static constexpr std::uint32_t kBase = 5;

  CutInput InputOf(const Standings& ranks) const {
    CutInput input{.tensor = GetParam().tensor, .data = GetParam().data};
    for (int i = 0; i < std::ssize(ranks); ++i) {
      input.members.push_back(
          Rank(input.tensor, i % input.tensor, kBase + ranks[i].step, ranks[i].reduced));
    }
    return input;
  }

  /// All vectors; of more than 3 x 3 ranks, one for each order of rows and columns.
  static std::vector<Standings> Vectors() {
    const auto [tensor, data] = GetParam();
    return Reachable(tensor, data, tensor * data > 9 ? Equals::kRowsAndColumns : Equals::kRows);
  }

  /// Checks one vector, given by its input, with these ranks dead.
  std::string Check(CutInput& input, const std::set<int>& dead) const {
    std::vector<std::optional<v1::Stopped>> last_words;
    for (const int rank : dead) {
      last_words.push_back(std::exchange(input.members[rank], std::nullopt));
    }
    std::string wrong = CheckWithout(input, dead);
    auto back = last_words.begin();
    for (const int rank : dead) input.members[rank] = std::move(*back++);
    return wrong;
  }

  std::string CheckWithout(const CutInput& input, const std::set<int>& dead) const {
    const auto cut = DecideCut(input);
    if (!cut.ok()) return std::string(cut.status().message());
    const auto largest = LargestCut(input);
    if ((cut->source == Source::kSurvivor) != largest.has_value()) return "wrong source";
    if (largest && *largest != cut->step) {
      return fmt::format("cut {} instead of {}", cut->step, *largest);
    }
    bool column_lost = false;
    for (int tp = 0; tp < input.tensor; ++tp) {
      bool lost = true;
      for (int dp = 0; dp < input.data; ++dp) lost &= dead.contains(dp * input.tensor + tp);
      column_lost |= lost;
    }
    // Two deaths can part the columns (one rank of each left, a step apart and not reduced); one
    // cannot.
    if (!largest) return column_lost || dead.size() > 1 ? "" : "one failure, but no cut";
    // k: the step that some rank, dead or alive, had not committed yet. Points up to k - 1 may be
    // published.
    if (dead.size() == 1 && cut->step != kBase && cut->step != kBase + 1) {
      return fmt::format("cut {} is neither k nor k + 1", cut->step);
    }
    if (cut->step < kBase) return fmt::format("published steps lost: cut {}", cut->step);
    return CheckCut(input, *cut);
  }
};

TEST_P(ReachableCutTest, OneFailureLosesNoStep) {
  const auto [tensor, data] = GetParam();
  const auto vectors = Vectors();
  for (const Standings& ranks : vectors) {
    CutInput input = InputOf(ranks);
    for (int dead = 0; dead < tensor * data; ++dead) {
      const std::string wrong = Check(input, {dead});
      ASSERT_EQ(wrong, "") << ShowStandings(ranks, tensor, {dead});
    }
  }
  std::printf("TP %d x DP %d: %zu reachable vectors\n", tensor, data, vectors.size());
}

TEST_P(ReachableCutTest, TwoFailuresTakeTheLargestStepThatIsLeft) {
  const auto [tensor, data] = GetParam();
  for (const Standings& ranks : Vectors()) {
    CutInput input = InputOf(ranks);
    for (int first = 0; first < tensor * data; ++first) {
      for (int second = first + 1; second < tensor * data; ++second) {
        const std::string wrong = Check(input, {first, second});
        ASSERT_EQ(wrong, "") << ShowStandings(ranks, tensor, {first, second});
      }
    }
  }
}

TEST_P(ReachableCutTest, TheRowsThatAreLeftLoseNoStepEither) {
  const auto [tensor, data] = GetParam();
  if (data == 1) GTEST_SKIP() << "no replica is left";
  for (const Standings& ranks : Vectors()) {
    const CutInput input = InputOf(ranks);
    for (int dead = 0; dead < tensor * data; ++dead) {
      std::vector<Place> places;
      for (const auto& member : input.members) places.push_back({true, member});
      places[dead] = {};
      const std::vector<int> rows = WholeRows(tensor, places);
      ASSERT_EQ(std::ssize(rows), tensor * (data - 1));
      CutInput left{.tensor = tensor, .data = data - 1};
      for (const int slot : rows) left.members.push_back(input.members[slot]);
      const auto cut = DecideCut(left);
      ASSERT_TRUE(cut.ok()) << cut.status();
      ASSERT_EQ(cut->source, Source::kSurvivor) << ShowStandings(ranks, tensor, {dead});
      ASSERT_GE(cut->step, kBase) << ShowStandings(ranks, tensor, {dead});
      ASSERT_EQ(CheckCut(left, *cut), "") << ShowStandings(ranks, tensor, {dead});
    }
  }
}

TEST(WholeRowsTest, KeepsWholeRowsAndPutsTheRestTogether) {
  struct Case {
    const char* name;
    int tensor;
    const char* members;  // as Parse; '-' is an empty place
    std::vector<int> want;
  };
  const Case cases[] = {
      {"nobody is missing", 2, "5 5 5 5", {0, 1, 2, 3}},
      {"row 0 is left out", 2, "- 5 5 5", {2, 3}},
      {"two halves make one", 2, "- 5 5 - 5 5", {4, 5, 2, 1}},
      {"the most advanced first", 2, "- 5 5r - - 6 5 -", {2, 5, 6, 1}},
      {"of more than there are rows, too", 2, "- 5 5r - - 6", {2, 5}},
      {"a rank without state comes last", 1, "? - 5", {0, 2}},
      {"a tp has nobody", 2, "- 5 - 5", {}},
      {"everybody is missing", 1, "- -", {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string text = c.members;
    const int ranks = static_cast<int>(std::ranges::count(text, ' ')) + 1;
    std::vector<Place> places;
    for (const auto& member : Parse(c.tensor, ranks / c.tensor, c.members).members) {
      places.push_back({member.has_value(), member});
    }
    EXPECT_EQ(WholeRows(c.tensor, places), c.want);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ReachableCutTest,
                         testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                         Shape{1, 2}, Shape{2, 2}, Shape{3, 2}, Shape{4, 2},
                                         Shape{1, 3}, Shape{2, 3}, Shape{3, 3}, Shape{4, 3},
                                         Shape{1, 4}, Shape{2, 4}, Shape{3, 4}, Shape{4, 4}),
                         [](const auto& info) {
                           return fmt::format("Tp{}Dp{}", info.param.tensor, info.param.data);
                         });

}  // namespace
}  // namespace tundish::recovery
