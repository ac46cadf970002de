#include "runtime/base/open_beneath.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace tundish {
namespace {

std::string Reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

File::~File() {
  if (descriptor_ < 0) return;
  const int error = errno;  // Whoever returns past this may still want to tell what failed.
  close(descriptor_);
  errno = error;
}

File OpenBeneath(const File& folder, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return File(
      static_cast<int>(syscall(SYS_openat2, folder.descriptor(), path.c_str(), &how, sizeof(how))));
}

absl::StatusOr<File> OpenBeneath(const std::string& root, const std::string& path) {
  const File folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.descriptor() < 0) {
    return absl::NotFoundError(fmt::format("artifact root '{}': {}", root, Reason(errno)));
  }
  // A pipe must not hold us up before it is refused.
  File file = OpenBeneath(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor() < 0) {
    const int error = errno;
    const std::string message = fmt::format("artifact '{}': {}", path, Reason(error));
    if (error == EXDEV || error == EACCES || error == ELOOP) {
      return absl::PermissionDeniedError(message);
    }
    return absl::NotFoundError(message);
  }
  struct stat info {};
  if (fstat(file.descriptor(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        fmt::format("artifact '{}' is not a regular file; name a file in it", path));
  }
  return file;
}

}  // namespace tundish
