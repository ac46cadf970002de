#include "tests/server/recovery/reachable.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

namespace tundish::recovery {
namespace {

/// 3 bits per rank: at most 3 x 3 ranks, and steps within a vector differ by less than 4.
std::uint32_t Encode(const Standings& ranks) {
  std::uint32_t code = 0;
  for (const Standing& rank : ranks) {
    code = code << 3 | static_cast<std::uint32_t>(2 * rank.step + rank.reduced);
  }
  return code;
}

bool CanReduce(const Standings& ranks, int tensor, int index) {
  for (int i = index % tensor; i < static_cast<int>(ranks.size()); i += tensor) {
    if (ranks[i].step < ranks[index].step) return false;
  }
  return true;
}

bool CanCommit(const Standings& ranks, int tensor, int index) {
  const int first = index / tensor * tensor;
  for (int i = first; i < first + tensor; ++i) {
    const bool passed = ranks[i].step > ranks[index].step;
    const bool here = ranks[i].step == ranks[index].step && ranks[i].reduced;
    if (!passed && !here) return false;
  }
  return true;
}

void Shift(Standings& ranks) {
  int least = ranks[0].step;
  for (const Standing& rank : ranks) least = std::min(least, rank.step);
  for (Standing& rank : ranks) rank.step -= least;
}

}  // namespace

std::vector<Standings> Reachable(int tensor, int data) {
  std::vector<Standings> found = {Standings(tensor * data)};
  std::unordered_set<std::uint32_t> seen = {Encode(found[0])};
  for (std::size_t at = 0; at < found.size(); ++at) {
    for (int i = 0; i < tensor * data; ++i) {
      Standings next = found[at];
      if (!next[i].reduced && CanReduce(next, tensor, i)) {
        next[i].reduced = true;
      } else if (next[i].reduced && CanCommit(next, tensor, i)) {
        next[i] = {next[i].step + 1, false};
      } else {
        continue;
      }
      Shift(next);
      if (seen.insert(Encode(next)).second) found.push_back(std::move(next));
    }
  }
  return found;
}

}  // namespace tundish::recovery
