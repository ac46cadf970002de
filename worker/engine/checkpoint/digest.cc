#include "worker/engine/checkpoint/digest.h"

#include <cstdio>
#include <memory>
#include <openssl/evp.h>
#include <vector>

#include <fmt/format.h>

namespace tundish::checkpoint {

absl::StatusOr<FileDigest> DigestFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  if (!file || !context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return absl::UnavailableError(fmt::format("cannot read {}", path));
  }
  FileDigest digest;
  std::vector<unsigned char> buffer(size_t{1} << 20);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    EVP_DigestUpdate(context.get(), buffer.data(), got);
    digest.bytes += got;
  }
  if (std::ferror(file.get()) != 0) {
    return absl::UnavailableError(fmt::format("reading {} failed", path));
  }
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), hash, &length);
  for (unsigned int i = 0; i < length; ++i) digest.sha256 += fmt::format("{:02x}", hash[i]);
  return digest;
}

}  // namespace tundish::checkpoint
