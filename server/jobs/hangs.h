#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tundish/v1/rank.pb.h"

// Which rank of a job hangs. Pure: a function of what ranks said and of the time.
namespace tundish::jobs {

/// How far a rank is, as far as it is known.
struct RankProgress {
  v1::RankPhase phase = v1::RANK_PHASE_UNSPECIFIED;
  /// Steps committed; then the counter of Progress.
  uint32_t step = 0;
  uint64_t counter = 0;
  /// Highest Probe it has answered.
  uint32_t probe = 0;
  /// False while its agent is away: its silence means nothing.
  bool heard = true;
};

struct HangInput {
  std::chrono::steady_clock::time_point now;
  /// When any rank was last known to have come further.
  std::chrono::steady_clock::time_point last_progress;
  /// Median of the job's last steps, seconds; 0: none is known.
  double step_seconds = 0;
  /// No step is committed yet since the groups formed: it takes longer than later ones.
  bool first_step = false;
  /// RecoverySpec.step_deadline_seconds.
  std::chrono::seconds deadline{300};
  /// The last Probe that was sent, and when; 0: none since the last progress.
  uint32_t probe = 0;
  std::chrono::steady_clock::time_point probe_sent;
  std::vector<RankProgress> ranks;
};

struct HangDecision {
  enum class Act {
    kWait,
    /// Ask every rank how far it is.
    kProbe,
    /// `victims` hang.
    kKill,
    /// Somebody hangs and nothing tells who: stop all, which finds out.
    kStopAll,
  };
  Act act = Act::kWait;
  /// Indices into HangInput::ranks.
  std::vector<size_t> victims;
};

/// How long nothing may be heard of progress before a rank that does not answer either counts as
/// hung: three median steps and a second at least while steps are done, longer for work whose time
/// is not known.
std::chrono::steady_clock::duration SilenceLimit(const HangInput& input);

/// Ranks that do not answer a Probe by SilenceLimit (three times that if nobody answers) hang: a
/// stopped process cannot answer, one that waits for it does. Of ranks that all answer, the least
/// advanced one hangs when the deadline has passed.
HangDecision DecideHang(const HangInput& input);

}  // namespace tundish::jobs
