#include "server/partitioner/choosing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace tundish::partitioner {
namespace {

class Chooser {
 public:
  Chooser(const std::vector<const HostGroups*>& hosts, int tensor)
      : hosts_(hosts), tensor_(tensor), used_(hosts.size(), false) {}

  Choice Choose(int wanted) {
    std::map<int, std::vector<Offer>> by_level;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      for (const Group& group : hosts_[host]->groups) {
        std::vector<Offer>& offers = by_level[group.level];
        if (offers.empty() || offers.back().host != host) offers.push_back({host, {}});
        offers.back().groups.push_back(&group);
      }
    }
    for (auto& [level, offers] : by_level) ChooseLevel(offers, wanted - Taken());
    const int missing = wanted - Taken();
    if (missing > 0) ChooseAcross(missing);
    return std::move(choice_);
  }

 private:
  struct Offer {
    std::size_t host;
    std::vector<const Group*> groups;
  };

  int Taken() const { return static_cast<int>(choice_.inside.size()); }

  void ChooseLevel(std::vector<Offer>& offers, int wanted) {
    while (wanted > 0 && !offers.empty()) {
      const auto best = std::ranges::min_element(
          offers, [&](const Offer& a, const Offer& b) { return Better(a, b, wanted); });
      // Tight domains first: larger ones stay whole.
      std::ranges::stable_sort(best->groups, {}, &Group::domain_free);
      const int count = std::min<int>(wanted, static_cast<int>(best->groups.size()));
      choice_.inside.insert(choice_.inside.end(), best->groups.begin(),
                            best->groups.begin() + count);
      used_[best->host] = true;
      wanted -= count;
      offers.erase(best);
    }
  }

  /// A host in use costs nothing more; one that gives all that is missing is best when it has the
  /// fewest to spare; else the one that gives most.
  bool Better(const Offer& a, const Offer& b, int wanted) const {
    if (used_[a.host] != used_[b.host]) return used_[a.host];
    const int size_a = static_cast<int>(a.groups.size());
    const int size_b = static_cast<int>(b.groups.size());
    const bool enough_a = size_a >= wanted;
    if (enough_a != (size_b >= wanted)) return enough_a;
    if (size_a != size_b) return enough_a ? size_a < size_b : size_a > size_b;
    return a.host < b.host;
  }

  void ChooseAcross(int wanted) {
    std::vector<std::size_t> order(hosts_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      if (used_[a] != used_[b]) return bool{used_[a]};
      return hosts_[a]->leftover.size() > hosts_[b]->leftover.size();
    });
    std::vector<const DeviceView*> left;
    for (const std::size_t host : order) {
      left.insert(left.end(), hosts_[host]->leftover.begin(), hosts_[host]->leftover.end());
    }
    choice_.across.resize(wanted);
    for (int i = 0; i < wanted; ++i) {
      choice_.across[i].devices.assign(left.begin() + std::int64_t{i} * tensor_,
                                       left.begin() + std::int64_t{i + 1} * tensor_);
    }
  }

  const std::vector<const HostGroups*>& hosts_;
  const int tensor_;
  std::vector<bool> used_;
  Choice choice_;
};

}  // namespace

Choice ChooseGroups(const std::vector<const HostGroups*>& hosts, int tensor, int wanted) {
  return Chooser(hosts, tensor).Choose(wanted);
}

}  // namespace tundish::partitioner
