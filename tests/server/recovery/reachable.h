#pragma once

#include <cstdint>
#include <vector>

namespace tundish::recovery {

/// Where a rank stands, as its final report shows it.
struct Standing {
  int step = 0;
  bool reduced = false;
};

/// One vector of standings, index dp * tensor + tp.
using Standings = std::vector<Standing>;

/// Which vectors stand for each other. Replicas differ in nothing but their number; columns
/// neither, but for the sums that are taken from tp 0.
enum class Equals { kRows, kRowsAndColumns };

/// Every vector that ranks can be in when they stop at an arbitrary moment, up to a shift of the
/// step (the least step of a vector is 0) and up to the order of what `equals` says. Moves: a rank
/// at step k becomes reduced when every rank of its column has come to step k (it may have
/// contributed already while it still shows as computing); a reduced rank commits when every rank
/// of its row is reduced at k or further. Collectives end on different ranks at different times,
/// which the one-rank moves cover. A rank that is dead has contributed what it had contributed when
/// it died, so vectors with dead ranks are these with entries removed.
std::vector<Standings> Reachable(int tensor, int data, Equals equals);

}  // namespace tundish::recovery
