#include "worker/engine/observe/memory_watch.h"

#include <algorithm>
#include <functional>

namespace tundish::observe {
namespace {

constexpr uint32_t kBlockSteps = 50;
// Four rises between five blocks lie 200 steps apart.
constexpr size_t kBlocks = 5;
constexpr uint64_t kLeastRise = uint64_t{32} << 20;

}  // namespace

std::optional<MemoryWatch::Growth> MemoryWatch::Observe(uint64_t bytes) {
  if (steps_in_block_ == 0) {
    least_of_block_.push_back(bytes);
  } else {
    least_of_block_.back() = std::min(least_of_block_.back(), bytes);
  }
  if (++steps_in_block_ < kBlockSteps) return std::nullopt;
  steps_in_block_ = 0;
  if (least_of_block_.size() < kBlocks) return std::nullopt;
  const uint64_t from = least_of_block_.front();
  const uint64_t to = least_of_block_.back();
  // Not strictly rising somewhere: a plateau, so no leak.
  const bool rises =
      std::ranges::adjacent_find(least_of_block_, std::greater_equal<>()) == least_of_block_.end();
  if (rises && to - from >= std::max(kLeastRise, from / 50)) {
    least_of_block_.assign({to});
    return Growth{from, to, kBlockSteps * static_cast<uint32_t>(kBlocks - 1)};
  }
  least_of_block_.erase(least_of_block_.begin());
  return std::nullopt;
}

}  // namespace tundish::observe
