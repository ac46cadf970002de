#pragma once

#include <cstdint>
#include <string_view>

// What the host says of its memory, for CPU devices: their memory is the host's.
namespace tundish::topology {

/// Bytes of the line "MemTotal: N kB" of /proc/meminfo; 0 if there is none.
std::uint64_t ParseMemTotal(std::string_view meminfo);

/// Bytes of a cgroup's memory.max; 0 for "max" or anything else that is no number.
std::uint64_t ParseMemoryMax(std::string_view memory_max);

/// Memory this process may count on, bytes: MemTotal, or less where its cgroup (version 2) or one
/// above it says so. 0 where the host does not tell. Reads /proc and /sys.
std::uint64_t HostMemoryBytes();

}  // namespace tundish::topology
