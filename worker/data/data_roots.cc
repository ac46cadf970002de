#include "worker/data/data_roots.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <system_error>

#include <absl/status/status.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/open_beneath.h"

namespace tundish::data {
namespace {

namespace fs = std::filesystem;

constexpr int kFlags = O_RDONLY | O_CLOEXEC;

/// `below`, a path relative to folder `root`; -1 and errno on failure.
int OpenInRoot(const std::string& root, const std::string& below, int flags) {
  const File folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.descriptor() < 0) return -1;
  return OpenBeneath(folder, below, kFlags | flags).Release();
}

}  // namespace

absl::Status StatusOfErrno(std::string_view action, int error) {
  const std::string message = fmt::format("{}: {}", action, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<DataRoots> DataRoots::Parse(std::string_view folders) {
  DataRoots roots;
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string folder(folders.substr(0, end));
    folders.remove_prefix(std::min(end + 1, folders.size()));
    if (folder.empty()) continue;
    if (!fs::path(folder).is_absolute()) {
      return absl::InvalidArgumentError(
          fmt::format("data root '{}' is not absolute; expected e.g. /srv/images", folder));
    }
    roots.folders_.push_back(fs::path(folder + "/").lexically_normal().string());
  }
  return roots;
}

const DataRoots& DataRoots::OfProcess() {
  static const DataRoots roots = [] {
    const char* folders = std::getenv("TUNDISH_DATA_ROOTS");
    absl::StatusOr<DataRoots> parsed = Parse(folders == nullptr ? "" : folders);
    if (!parsed.ok()) fmt::print(stderr, "{}\n", std::string(parsed.status().message()));
    TUNDISH_CHECK(parsed.ok());
    return *std::move(parsed);
  }();
  return roots;
}

absl::StatusOr<int> DataRoots::Open(const std::string& path, int flags) const {
  if (folders_.empty()) {
    const int opened = open(path.c_str(), kFlags | flags);
    if (opened < 0) return StatusOfErrno("cannot open", errno);
    return opened;
  }
  const std::string normal = fs::path(path).lexically_normal().string();
  for (const std::string& root : folders_) {
    const bool is_root = normal + "/" == root || normal == root;
    if (!is_root && !normal.starts_with(root)) continue;
    const int opened = OpenInRoot(root, is_root ? "." : normal.substr(root.size()), flags);
    if (opened >= 0) return opened;
    if (errno == EXDEV) break;
    if (errno == ENOSYS) {
      return absl::PermissionDeniedError(
          "data roots need openat2, which this kernel lacks; Linux 5.6 or newer has it");
    }
    return StatusOfErrno("cannot open", errno);
  }
  return absl::PermissionDeniedError(fmt::format(
      "lies outside the data roots of this host ({}); an operator sets them in TUNDISH_DATA_ROOTS",
      fmt::join(folders_, ", ")));
}

}  // namespace tundish::data
