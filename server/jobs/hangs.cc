#include "server/jobs/hangs.h"

#include <algorithm>
#include <utility>

namespace tundish::jobs {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<steady_clock::duration>(duration<double>(seconds));
}

/// A rank that was asked has at least this long to answer: threads wait for a busy processor, too.
constexpr double kAnswerSeconds = 0.25;

std::vector<size_t> Silent(const HangInput& input) {
  std::vector<size_t> silent;
  for (size_t i = 0; i < input.ranks.size(); ++i) {
    if (input.ranks[i].heard && input.ranks[i].probe < input.probe) silent.push_back(i);
  }
  return silent;
}

/// The only rank that is behind all others; empty if several share that place.
std::vector<size_t> LeastAdvanced(const HangInput& input) {
  const auto place = [](const RankProgress& rank) { return std::pair(rank.step, rank.counter); };
  const auto least = std::ranges::min_element(input.ranks, {}, place);
  if (least == input.ranks.end() || std::ranges::count(input.ranks, place(*least), place) > 1) {
    return {};
  }
  return {static_cast<size_t>(least - input.ranks.begin())};
}

}  // namespace

steady_clock::duration SilenceLimit(const HangInput& input) {
  constexpr double kSteps = 3;
  constexpr double kShortest = 1;
  constexpr double kUnknown = 10;
  const bool stepping = std::ranges::all_of(input.ranks, [](const RankProgress& rank) {
    return rank.phase == v1::PHASE_STEP || rank.phase == v1::RANK_PHASE_UNSPECIFIED;
  });
  double seconds = kUnknown;
  if (stepping && input.step_seconds > 0) {
    seconds = std::max(kShortest, kSteps * input.step_seconds);
    // Libraries set up at their first use what later steps find.
    if (input.first_step) seconds += 1;
  }
  return std::min<steady_clock::duration>(Seconds(seconds), input.deadline);
}

HangDecision DecideHang(const HangInput& input) {
  using Act = HangDecision::Act;
  const auto still = input.now - input.last_progress;
  if (still >= input.deadline) {
    if (std::vector<size_t> victims = input.probe > 0 ? Silent(input) : std::vector<size_t>();
        !victims.empty() && victims.size() < input.ranks.size()) {
      return {Act::kKill, std::move(victims)};
    }
    std::vector<size_t> victims = LeastAdvanced(input);
    if (victims.empty()) return {Act::kStopAll, {}};
    return {Act::kKill, std::move(victims)};
  }
  const auto limit = SilenceLimit(input);
  // Asked early enough that the answers are there when the limit ends.
  const auto ask_at = limit - std::max(limit / 3, Seconds(kAnswerSeconds));
  const auto asked_ago = input.now - input.probe_sent;
  if (input.probe == 0) return {still >= ask_at ? Act::kProbe : Act::kWait, {}};
  std::vector<size_t> silent = Silent(input);
  // All are well: it is a long step, or one computes for ever, which the deadline ends.
  if (silent.empty()) return {asked_ago >= limit ? Act::kProbe : Act::kWait, {}};
  const auto heard = std::ranges::count_if(input.ranks, &RankProgress::heard);
  const bool nobody = std::cmp_equal(silent.size(), heard);
  if (still < (nobody ? 3 * limit : limit) || asked_ago < Seconds(kAnswerSeconds)) return {};
  return {Act::kKill, std::move(silent)};
}

}  // namespace tundish::jobs
