#include "server/api/file_source.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace tundish::api {

void LocalFile::Read(uint64_t offset, size_t most, Done done) {
  struct stat info {};
  fstat(file_.descriptor(), &info);
  FilePiece piece{.file_bytes = static_cast<uint64_t>(info.st_size)};
  if (offset < piece.file_bytes) {
    piece.bytes.resize(std::min<uint64_t>(most, piece.file_bytes - offset));
  }
  for (size_t filled = 0; filled < piece.bytes.size();) {
    const ssize_t got = pread(file_.descriptor(), piece.bytes.data() + filled,
                              piece.bytes.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return done(absl::DataLossError(fmt::format("the file ended or failed at byte {} of {}",
                                                  offset + filled, piece.file_bytes)));
    }
    filled += static_cast<size_t>(got);
  }
  done(std::move(piece));
}

}  // namespace tundish::api
