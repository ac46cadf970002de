#include "server/recovery/rows.h"

#include <algorithm>
#include <tuple>

namespace tundish::recovery {
namespace {

/// More is more advanced.
std::tuple<bool, std::uint32_t, bool> Advance(const Place& place) {
  if (!place.standing || !place.standing->has_state()) return {false, 0, false};
  return {true, place.standing->step(), place.standing->phase() == v1::REDUCED};
}

}  // namespace

std::vector<int> WholeRows(int tensor, const std::vector<Place>& places) {
  const int data = static_cast<int>(places.size()) / tensor;
  std::vector<int> rows;
  std::vector<std::vector<int>> left(tensor);
  for (int dp = 0; dp < data; ++dp) {
    const auto row = places.begin() + dp * tensor;
    const bool whole = std::all_of(row, row + tensor, [](const Place& p) { return p.occupied; });
    for (int slot = dp * tensor; slot < (dp + 1) * tensor; ++slot) {
      if (whole) {
        rows.push_back(slot);
      } else if (places[slot].occupied) {
        left[slot % tensor].push_back(slot);
      }
    }
  }
  std::size_t more = left[0].size();
  for (std::vector<int>& column : left) {
    more = std::min(more, column.size());
    std::ranges::stable_sort(
        column, [&places](int a, int b) { return Advance(places[a]) > Advance(places[b]); });
  }
  for (std::size_t i = 0; i < more; ++i) {
    for (const std::vector<int>& column : left) rows.push_back(column[i]);
  }
  return rows;
}

}  // namespace tundish::recovery
