#include "worker/engine/checkpoint/digest.h"

#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/sha256.h"

namespace tundish::checkpoint {

absl::StatusOr<FileDigest> DigestFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) return absl::UnavailableError(fmt::format("cannot read {}", path));
  FileDigest digest;
  Sha256 hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.Add({buffer.data(), got});
    digest.bytes += got;
  }
  if (std::ferror(file.get()) != 0) {
    return absl::UnavailableError(fmt::format("reading {} failed", path));
  }
  digest.sha256 = ToHex(hash.Finish());
  return digest;
}

std::string DigestBytes(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return ToHex(hash.Finish());
}

}  // namespace tundish::checkpoint
