#include "server/recovery/cut.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include <fmt/core.h>

namespace tundish::recovery {
namespace {

absl::Status CheckSlots(const v1::StepSums& sums, int tensor, std::size_t member) {
  if (sums.norm_squared_bits_size() == tensor && sums.norm_known_size() == tensor) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("sums of member {} have {} norm slots, {} marked: expected one per tp, {}",
                  member, sums.norm_squared_bits_size(), sums.norm_known_size(), tensor));
}

absl::Status Check(const CutInput& input) {
  const std::int64_t ranks = std::int64_t{input.tensor} * input.data;
  if (input.tensor < 1 || input.data < 1 || ranks != std::ssize(input.members)) {
    return absl::InvalidArgumentError(
        fmt::format("tensor={} x data={} with {} members: expected degrees of at least 1 and one "
                    "member for each rank",
                    input.tensor, input.data, input.members.size()));
  }
  for (std::size_t i = 0; i < input.members.size(); ++i) {
    if (!input.members[i]) continue;
    for (const auto& [there, sums] :
         {std::pair{input.members[i]->has_sums(), &input.members[i]->sums()},
          std::pair{input.members[i]->has_committed_sums(), &input.members[i]->committed_sums()}}) {
      if (!there) continue;
      if (absl::Status status = CheckSlots(*sums, input.tensor, i); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

bool Complete(const v1::StepSums& sums, int tensor) {
  return sums.norm_squared_bits_size() == tensor && sums.norm_known_size() == tensor &&
         std::ranges::all_of(sums.norm_known(), [](bool known) { return known; });
}

/// Who stands where, and what follows from it.
class Standings {
 public:
  explicit Standings(const CutInput& input) : input_(input) {}

  /// Rank (dp, tp) if it lives and holds a whole state.
  const v1::Stopped* At(int dp, int tp) const {
    const auto& member = input_.members[dp * input_.tensor + tp];
    return member && member->has_state() ? &*member : nullptr;
  }

  bool Keeps(int dp, int tp, std::uint32_t cut) const {
    const v1::Stopped* rank = At(dp, tp);
    return rank != nullptr && rank->step() == cut;
  }

  bool CanCommitTo(int dp, int tp, std::uint32_t cut) const {
    const v1::Stopped* rank = At(dp, tp);
    return rank != nullptr && cut > 0 && rank->step() == cut - 1 && rank->phase() == v1::REDUCED;
  }

  /// Every step a cut could be, largest first.
  std::set<std::uint32_t, std::greater<>> Candidates() const {
    std::set<std::uint32_t, std::greater<>> steps;
    for (int dp = 0; dp < input_.data; ++dp) {
      for (int tp = 0; tp < input_.tensor; ++tp) {
        const v1::Stopped* rank = At(dp, tp);
        if (rank == nullptr) continue;
        steps.insert(rank->step());
        if (rank->phase() == v1::REDUCED) steps.insert(rank->step() + 1);
      }
    }
    return steps;
  }

  /// What committing step `step` takes, if anybody alive knows it.
  std::optional<v1::StepSums> SumsOf(std::uint32_t step) const {
    for (int dp = 0; dp < input_.data; ++dp) {
      for (int tp = 0; tp < input_.tensor; ++tp) {
        if (!Keeps(dp, tp, step + 1) || !At(dp, tp)->has_committed_sums()) continue;
        if (Complete(At(dp, tp)->committed_sums(), input_.tensor)) {
          return At(dp, tp)->committed_sums();
        }
      }
    }
    if (input_.known_sums && input_.known_sums->step == step &&
        Complete(input_.known_sums->sums, input_.tensor)) {
      return input_.known_sums->sums;
    }
    return Assemble(step);
  }

  /// True if every column has a rank that is at `cut` or can get there.
  bool Holds(std::uint32_t cut, bool have_sums) const {
    for (int tp = 0; tp < input_.tensor; ++tp) {
      bool held = false;
      for (int dp = 0; dp < input_.data && !held; ++dp) {
        held = Keeps(dp, tp, cut) || (have_sums && CanCommitTo(dp, tp, cut));
      }
      if (!held) return false;
    }
    return true;
  }

 private:
  /// One REDUCED rank per tp: its slot of the norm. Loss and weight sums are equal over a row and,
  /// reduced, over a column: those of tp 0 serve. The non-finite flag need not be: the largest
  /// counts.
  std::optional<v1::StepSums> Assemble(std::uint32_t step) const {
    v1::StepSums sums;
    for (int tp = 0; tp < input_.tensor; ++tp) {
      const v1::StepSums* own = nullptr;
      for (int dp = 0; dp < input_.data && own == nullptr; ++dp) {
        if (!CanCommitTo(dp, tp, step + 1) || !At(dp, tp)->has_sums()) continue;
        if (At(dp, tp)->sums().norm_known(tp)) own = &At(dp, tp)->sums();
      }
      if (own == nullptr) return std::nullopt;
      sums.add_norm_squared_bits(own->norm_squared_bits(tp));
      sums.add_norm_known(true);
      if (tp == 0) {
        sums.set_loss_sum_bits(own->loss_sum_bits());
        sums.set_weight_sum_bits(own->weight_sum_bits());
        sums.set_nonfinite_bits(own->nonfinite_bits());
      }
      if (std::bit_cast<float>(own->nonfinite_bits()) >
          std::bit_cast<float>(sums.nonfinite_bits())) {
        sums.set_nonfinite_bits(own->nonfinite_bits());
      }
    }
    return sums;
  }

  const CutInput& input_;  // The caller's; lives through the decision.
};

struct Counts {
  int keeps = 0;
  int commits = 0;
  int receives = 0;
};

/// Start points of one column: holders first, then receivers are dealt to them in turn.
Counts StartColumn(const CutInput& input, const Standings& standings, int tp, Cut& cut) {
  Counts counts;
  std::vector<int> holders;
  std::vector<int> receivers;
  const auto start = [&](int dp) -> v1::StartPoint& { return cut.starts[dp * input.tensor + tp]; };
  for (int dp = 0; dp < input.data; ++dp) {
    start(dp).set_step(cut.step);
    if (standings.Keeps(dp, tp, cut.step)) {
      start(dp).mutable_keep();
      holders.push_back(dp);
      ++counts.keeps;
    } else if (cut.sums && standings.CanCommitTo(dp, tp, cut.step)) {
      *start(dp).mutable_commit() = cut.sums->sums;
      holders.push_back(dp);
      ++counts.commits;
    } else {
      receivers.push_back(dp);
      ++counts.receives;
    }
  }
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    const int sender = holders[i % holders.size()];
    start(receivers[i]).mutable_receive()->set_dp(sender);
    start(sender).add_send_to_dp(receivers[i]);
  }
  return counts;
}

Cut FromSurvivors(const CutInput& input, const Standings& standings, std::uint32_t step,
                  const std::optional<v1::StepSums>& sums) {
  Cut cut{.step = step, .source = Source::kSurvivor};
  if (sums) cut.sums = KnownSums{step - 1, *sums};
  cut.starts.resize(input.members.size());
  Counts all;
  for (int tp = 0; tp < input.tensor; ++tp) {
    const Counts column = StartColumn(input, standings, tp, cut);
    all.keeps += column.keeps;
    all.commits += column.commits;
    all.receives += column.receives;
  }
  if (all.commits == 0) cut.sums.reset();
  cut.reason = fmt::format("survivors hold step {}: {} keep it, {} commit it, {} receive it", step,
                           all.keeps, all.commits, all.receives);
  return cut;
}

Cut FromElsewhere(const CutInput& input) {
  Cut cut;
  cut.starts.resize(input.members.size());
  if (input.checkpoint) {
    cut.step = input.checkpoint->step;
    cut.source = Source::kCheckpoint;
    cut.reason =
        fmt::format("no step is held for every tp: back to the checkpoint of step {}", cut.step);
    for (v1::StartPoint& start : cut.starts) {
      start.set_step(cut.step);
      start.mutable_checkpoint()->set_path(input.checkpoint->path);
    }
    return cut;
  }
  cut.reason = "no step is held for every tp and there is no checkpoint: from the start";
  for (v1::StartPoint& start : cut.starts) start.mutable_fresh();
  return cut;
}

}  // namespace

std::string_view SourceName(Source source) {
  switch (source) {
    case Source::kSurvivor:
      return "survivor";
    case Source::kCheckpoint:
      return "checkpoint";
    case Source::kStart:
      return "start";
  }
  return "unknown";
}

absl::StatusOr<Cut> DecideCut(const CutInput& input) {
  if (absl::Status good = Check(input); !good.ok()) return good;
  const Standings standings(input);
  for (const std::uint32_t step : standings.Candidates()) {
    const std::optional<v1::StepSums> sums = step > 0 ? standings.SumsOf(step - 1) : std::nullopt;
    if (standings.Holds(step, sums.has_value())) {
      return FromSurvivors(input, standings, step, sums);
    }
  }
  return FromElsewhere(input);
}

}  // namespace tundish::recovery
