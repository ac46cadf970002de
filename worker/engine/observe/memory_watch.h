#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tundish::observe {

/// Tells a leak from the noise of an allocator: over 200 steps, in blocks of 50, the least memory
/// of each block is more than that of the one before, and the whole rise is at least 2 % and
/// 32 MiB. Pure; steps need not follow each other.
class MemoryWatch {
 public:
  struct Growth {
    uint64_t from_bytes = 0;
    uint64_t to_bytes = 0;
    uint32_t steps = 0;
  };

  /// `bytes` are held after a step, caches that may fill left out. A growth is told once; the next
  /// 200 steps start from where it ended.
  std::optional<Growth> Observe(uint64_t bytes);

 private:
  std::vector<uint64_t> least_of_block_;
  uint32_t steps_in_block_ = 0;
};

}  // namespace tundish::observe
