#include "worker/engine/checkpoint/digest.h"

#include <cstdio>
#include <memory>
#include <openssl/evp.h>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace tundish::checkpoint {
namespace {

std::string Hex(const unsigned char* hash, unsigned int length) {
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", hash[i]);
  return hex;
}

}  // namespace

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
  digest.sha256 = Hex(hash, length);
  return digest;
}

std::string DigestBytes(std::span<const std::byte> bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  TORCH_CHECK(EVP_Digest(bytes.data(), bytes.size(), hash, &length, EVP_sha256(), nullptr) == 1,
              "libcrypto has no SHA-256");
  return Hex(hash, length);
}

}  // namespace tundish::checkpoint
