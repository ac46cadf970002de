#include "runtime/config/nearest_key.h"

#include <algorithm>
#include <numeric>

#include <absl/strings/ascii.h>

namespace tundish {

int EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the alignment table: a swap looks two rows back.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0);
  const auto same = [](char x, char y) { return absl::ascii_tolower(x) == absl::ascii_tolower(y); };
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string NearestKey(std::string_view key, const std::vector<std::string>& known) {
  // A key longer than any known one by far needs no exact distance, and its length is the writer's.
  key = key.substr(0, 256);
  const auto nearest = std::ranges::min_element(
      known, {}, [&](const std::string& candidate) { return EditDistance(key, candidate); });
  return nearest == known.end() ? std::string() : *nearest;
}

}  // namespace tundish
