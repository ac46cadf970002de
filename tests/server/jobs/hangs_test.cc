#include "server/jobs/hangs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::jobs {
namespace {

using Act = HangDecision::Act;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::IsEmpty;

const steady_clock::time_point kStart{std::chrono::hours(1)};

/// Four ranks in a step; the last progress was at kStart.
HangInput Stepping(double step_seconds) {
  HangInput input{.now = kStart, .last_progress = kStart, .step_seconds = step_seconds};
  input.ranks.assign(4, {.phase = v1::PHASE_STEP, .step = 3, .counter = 7});
  return input;
}

struct LimitCase {
  const char* name;
  double step_seconds;
  bool first_step;
  v1::RankPhase phase;  ///< Of one of the ranks.
  milliseconds want;
};

TEST(HangsTest, EachKindOfWorkHasItsLimit) {
  const LimitCase cases[] = {
      {"short steps", 0.02, false, v1::PHASE_STEP, milliseconds(1000)},
      {"long steps", 2, false, v1::PHASE_STEP, milliseconds(6000)},
      {"first step", 0.02, true, v1::PHASE_STEP, milliseconds(2000)},
      {"no step is known", 0, true, v1::PHASE_STEP, milliseconds(10'000)},
      {"evaluation", 0.02, false, v1::PHASE_EVALUATION, milliseconds(10'000)},
      {"copy", 0.02, true, v1::PHASE_COPYING, milliseconds(10'000)},
      {"steps beyond the deadline", 1e9, false, v1::PHASE_STEP, milliseconds(300'000)},
  };
  for (const LimitCase& c : cases) {
    SCOPED_TRACE(c.name);
    HangInput input = Stepping(c.step_seconds);
    input.first_step = c.first_step;
    input.ranks[2].phase = c.phase;
    EXPECT_EQ(SilenceLimit(input), c.want);
  }
}

struct DecideCase {
  const char* name;
  int still_ms;      ///< Since the last progress.
  int asked_ms_ago;  ///< -1: nobody was asked.
  std::vector<bool> answered;
  Act want;
  std::vector<size_t> victims;
};

TEST(HangsTest, WhoDoesNotAnswerHangs) {
  const DecideCase cases[] = {
      {"all is well", 300, -1, {}, Act::kWait, {}},
      {"worth asking", 700, -1, {}, Act::kProbe, {}},
      {"answers are under way", 900, 200, {true, false, true, true}, Act::kWait, {}},
      {"one is silent", 1000, 300, {true, false, true, true}, Act::kKill, {1}},
      {"two are silent", 1000, 300, {true, false, true, false}, Act::kKill, {1, 3}},
      {"asked just now", 1000, 100, {true, false, true, true}, Act::kWait, {}},
      {"all answer", 1000, 300, {true, true, true, true}, Act::kWait, {}},
      {"asked again later", 1700, 1000, {true, true, true, true}, Act::kProbe, {}},
      {"nobody answers: not the ranks' fault",
       1000,
       300,
       {false, false, false, false},
       Act::kWait,
       {}},
      {"nobody answers for long",
       3000,
       2300,
       {false, false, false, false},
       Act::kKill,
       {0, 1, 2, 3}},
  };
  for (const DecideCase& c : cases) {
    SCOPED_TRACE(c.name);
    HangInput input = Stepping(0.1);
    input.now = kStart + milliseconds(c.still_ms);
    if (c.asked_ms_ago >= 0) {
      input.probe = 5;
      input.probe_sent = input.now - milliseconds(c.asked_ms_ago);
      for (size_t i = 0; i < 4; ++i) input.ranks[i].probe = c.answered[i] ? 5 : 4;
    }
    const HangDecision decision = DecideHang(input);
    EXPECT_EQ(decision.act, c.want);
    EXPECT_EQ(decision.victims, c.victims);
  }
}

TEST(HangsTest, OfRanksThatAllAnswerTheLeastAdvancedHangsAtTheDeadline) {
  HangInput input = Stepping(0.1);
  input.probe = 1;
  input.probe_sent = kStart + std::chrono::seconds(299);
  for (RankProgress& rank : input.ranks) rank.probe = 1;
  input.ranks[2].counter = 6;
  input.now = kStart + milliseconds(299'500);
  EXPECT_EQ(DecideHang(input).act, Act::kWait);
  input.now = kStart + std::chrono::seconds(300);
  EXPECT_EQ(DecideHang(input).act, Act::kKill);
  EXPECT_THAT(DecideHang(input).victims, ElementsAre(2));
  input.ranks[3].counter = 6;
  EXPECT_EQ(DecideHang(input).act, Act::kStopAll) << "one of the two waits for the other";
  EXPECT_THAT(DecideHang(input).victims, IsEmpty());
}

TEST(HangsTest, TheSilenceOfAHostWithoutItsAgentMeansNothing) {
  HangInput input = Stepping(0.1);
  input.now = kStart + milliseconds(1500);
  input.probe = 1;
  input.probe_sent = kStart + milliseconds(700);
  input.ranks[0].probe = input.ranks[1].probe = 1;
  input.ranks[2].heard = input.ranks[3].heard = false;
  EXPECT_EQ(DecideHang(input).act, Act::kWait);
  input.ranks[3].heard = true;
  EXPECT_THAT(DecideHang(input).victims, ElementsAre(3));
}

}  // namespace
}  // namespace tundish::jobs
