#include "tests/server/recovery/reachable.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace tundish::recovery {
namespace {

/// 3 bits per rank: at most 4 x 4 ranks, and steps within a vector differ by less than 4.
using Code = std::uint64_t;
constexpr int kBits = 3;

/// Sorts the rows; true if that moved any.
bool SortRows(Standings& ranks, int tensor) {
  const int data = static_cast<int>(ranks.size()) / tensor;
  std::vector<std::pair<Code, int>> rows(data);
  for (int dp = 0; dp < data; ++dp) {
    rows[dp] = {0, dp};
    for (int tp = 0; tp < tensor; ++tp) {
      const Standing& rank = ranks[dp * tensor + tp];
      rows[dp].first = rows[dp].first << kBits | static_cast<Code>(2 * rank.step + rank.reduced);
    }
  }
  if (std::ranges::is_sorted(rows, {}, &std::pair<Code, int>::first)) return false;
  std::ranges::sort(rows);
  const Standings before = ranks;
  for (int dp = 0; dp < data; ++dp) {
    for (int tp = 0; tp < tensor; ++tp) {
      ranks[dp * tensor + tp] = before[rows[dp].second * tensor + tp];
    }
  }
  return true;
}

Standings Transposed(const Standings& ranks, int tensor) {
  const int data = static_cast<int>(ranks.size()) / tensor;
  Standings other(ranks.size());
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    other[i % tensor * data + i / tensor] = ranks[i];
  }
  return other;
}

/// Puts the vector into the order that stands for all its equals, and gives that a number.
Code Normalize(Standings& ranks, int tensor, Equals equals) {
  const int data = static_cast<int>(ranks.size()) / tensor;
  SortRows(ranks, tensor);
  while (equals == Equals::kRowsAndColumns) {
    Standings columns = Transposed(ranks, tensor);
    const bool moved = SortRows(columns, data);
    ranks = Transposed(columns, data);
    if (!moved || !SortRows(ranks, tensor)) break;
  }
  Code code = 0;
  for (const Standing& rank : ranks) {
    code = code << kBits | static_cast<Code>(2 * rank.step + rank.reduced);
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
  const int least = std::ranges::min_element(ranks, {}, &Standing::step)->step;
  for (Standing& rank : ranks) rank.step -= least;
}

}  // namespace

std::vector<Standings> Reachable(int tensor, int data, Equals equals) {
  std::vector<Standings> found = {Standings(tensor * data)};
  std::unordered_set<Code> seen = {Normalize(found[0], tensor, equals)};
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
      if (seen.insert(Normalize(next, tensor, equals)).second) found.push_back(std::move(next));
    }
  }
  return found;
}

}  // namespace tundish::recovery
