#include "server/partitioner/ring.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

#include "server/partitioner/natural_order.h"

namespace tundish::partitioner {
namespace {

bool SameHost(const DeviceView* a, const DeviceView* b) {
  return a->node == b->node;
}

/// Extra hops of `device` between two neighbours.
int Cost(const DeviceView* before, const DeviceView* device, const DeviceView* after) {
  return (SameHost(before, device) ? 0 : 1) + (SameHost(device, after) ? 0 : 1) -
         (SameHost(before, after) ? 0 : 1);
}

/// The order of `row`'s devices that costs least between two rows: cheapest pairs first. Devices
/// that cost the same keep their order.
std::pair<int, Row> Fit(const Row& row, const Row& before, const Row& after) {
  const std::size_t size = row.size();
  std::vector<std::tuple<int, std::size_t, std::size_t>> pairs;
  for (std::size_t tp = 0; tp < size; ++tp) {
    for (std::size_t i = 0; i < size; ++i) {
      pairs.emplace_back(Cost(before[tp], row[i], after[tp]), tp, i);
    }
  }
  std::ranges::sort(pairs);
  Row fitted(size, nullptr);
  std::vector<bool> taken(size, false);
  int total = 0;
  for (const auto& [cost, tp, i] : pairs) {
    if (fitted[tp] != nullptr || taken[i]) continue;
    fitted[tp] = row[i];
    taken[i] = true;
    total += cost;
  }
  return {total, std::move(fitted)};
}

void Insert(std::vector<Row>& ring, Row row) {
  if (ring.empty()) {
    ring.push_back(std::move(row));
    return;
  }
  int least = std::numeric_limits<int>::max();
  std::size_t place = 0;
  Row best;
  for (std::size_t at = 1; at <= ring.size(); ++at) {
    auto [cost, fitted] = Fit(row, ring[at - 1], ring[at % ring.size()]);
    if (cost > least || (cost == least && at != ring.size())) continue;
    least = cost;
    place = at;
    best = std::move(fitted);
  }
  ring.insert(ring.begin() + static_cast<std::ptrdiff_t>(place), std::move(best));
}

}  // namespace

bool DeviceBefore(const DeviceView& a, const DeviceView& b) {
  if (a.node != b.node) return NaturalLess(a.node, b.node);
  const auto& x = a.link_domains;
  const auto& y = b.link_domains;
  for (std::size_t depth = 1; depth <= std::min(x.size(), y.size()); ++depth) {
    const std::string& p = x[x.size() - depth];
    const std::string& q = y[y.size() - depth];
    if (p != q) return NaturalLess(p, q);
  }
  if (x.size() != y.size()) return x.size() < y.size();
  return NaturalLess(a.device, b.device);
}

int CrossHostHops(const std::vector<Row>& rows) {
  int hops = 0;
  for (std::size_t dp = 0; dp < rows.size(); ++dp) {
    const Row& next = rows[(dp + 1) % rows.size()];
    for (std::size_t tp = 0; tp < rows[dp].size(); ++tp) {
      hops += SameHost(rows[dp][tp], next[tp]) ? 0 : 1;
    }
  }
  return hops;
}

std::vector<Row> OrderRing(std::vector<Row> inside, std::vector<Row> across) {
  const auto before = [](const DeviceView* a, const DeviceView* b) { return DeviceBefore(*a, *b); };
  for (Row& row : inside) std::ranges::sort(row, before);
  for (Row& row : across) std::ranges::sort(row, before);
  std::ranges::sort(inside, [](const Row& a, const Row& b) { return DeviceBefore(*a[0], *b[0]); });
  for (Row& row : across) Insert(inside, std::move(row));
  return inside;
}

}  // namespace tundish::partitioner
