#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/rank.pb.h"

// Where training goes on after ranks were lost: docs/recovery.md, "Decide".
namespace tundish::recovery {

struct Checkpoint {
  /// Steps committed in it.
  std::uint32_t step = 0;
  /// Folder below the artifact root.
  std::string path;
};

/// Sums the coordinator handed out in the cut before this one, for committing step `step`. They let
/// a second failure strike while that cut is being carried out.
struct KnownSums {
  std::uint32_t step = 0;
  v1::StepSums sums;
};

struct CutInput {
  int tensor = 1;
  int data = 1;
  /// Index dp * tensor + tp; nothing for a rank that is lost or replaced. A rank with has_state
  /// false counts as lost, but gets a start point like everybody else.
  std::vector<std::optional<v1::Stopped>> members;
  /// The newest complete one.
  std::optional<Checkpoint> checkpoint;
  std::optional<KnownSums> known_sums;
};

enum class Source { kSurvivor, kCheckpoint, kStart };

/// "survivor", "checkpoint", "start", as Incident.restored_from has it.
std::string_view SourceName(Source source);

struct Cut {
  /// Steps committed in the state every rank starts from.
  std::uint32_t step = 0;
  Source source = Source::kStart;
  /// Index dp * tensor + tp, `send_to_dp` filled in. Ranks that commit or keep before they send:
  /// everybody reaches the cut before copying begins.
  std::vector<v1::StartPoint> starts;
  /// Set when `starts` has commits: hand them in as CutInput.known_sums next time.
  std::optional<KnownSums> sums;
  /// One sentence for the event and the log.
  std::string reason;
};

/// The largest c such that every tp has a live holder: a rank with c committed steps, or with c − 1
/// and REDUCED. If there is none, the checkpoint; if there is none of those, step 0. A REDUCED rank
/// at c − 1 commits with the sums of a live rank that committed step c − 1, else with `known_sums`,
/// else with sums assembled from one REDUCED rank per tp (each knows its own slot of the norm; loss
/// and weight sums are equal over a row); it is no holder where none of these exist. Receivers of a
/// column are dealt to its holders in turn. Pure. `Incident.steps_lost` is the caller's: steps
/// every rank had committed, minus `step`. INVALID_ARGUMENT when degrees and members do not match,
/// or a member's sums have another number of slots than `tensor`.
absl::StatusOr<Cut> DecideCut(const CutInput& input);

}  // namespace tundish::recovery
