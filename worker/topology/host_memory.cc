#include "worker/topology/host_memory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

namespace tundish::topology {
namespace {

constexpr std::string_view kMemTotal = "MemTotal:";

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The number at the front of `text` after blanks; 0 if there is none.
std::uint64_t Number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : 0;
}

/// The path in the line "0::/path" of /proc/self/cgroup, below the root of the hierarchy.
std::filesystem::path OwnGroup(const std::string& text) {
  const std::size_t line = text.starts_with("0::/") ? 0 : text.find("\n0::/");
  if (line == std::string::npos) return {};
  const std::size_t from = text.find("0::/", line) + 4;
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace

std::uint64_t ParseMemTotal(std::string_view meminfo) {
  for (std::size_t line = 0; line < meminfo.size();) {
    const std::size_t end = std::min(meminfo.find('\n', line), meminfo.size());
    const std::string_view text = meminfo.substr(line, end - line);
    if (text.starts_with(kMemTotal) && text.ends_with("kB")) {
      const std::uint64_t kib = Number(text.substr(kMemTotal.size()));
      return kib <= std::numeric_limits<std::uint64_t>::max() / 1024 ? kib * 1024 : 0;
    }
    line = end + 1;
  }
  return 0;
}

std::uint64_t ParseMemoryMax(std::string_view memory_max) {
  return Number(memory_max);
}

std::uint64_t HostMemoryBytes() {
  std::uint64_t bytes = ParseMemTotal(Read("/proc/meminfo"));
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path group = OwnGroup(Read("/proc/self/cgroup"));
  while (true) {
    const std::uint64_t limit = ParseMemoryMax(Read(root / group / "memory.max"));
    if (limit > 0 && (bytes == 0 || limit < bytes)) bytes = limit;
    if (group.empty() || !group.has_relative_path()) return bytes;
    group = group.parent_path();
  }
}

}  // namespace tundish::topology
