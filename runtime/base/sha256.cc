#include "runtime/base/sha256.h"

#include <openssl/evp.h>

#include "runtime/base/check.h"

namespace tundish {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TUNDISH_CHECK(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(std::string_view bytes) {
  TUNDISH_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
}

void Sha256::AddField(std::string_view field) {
  AddNumber(field.size());
  Add(field);
}

void Sha256::AddNumber(uint64_t number) {
  std::array<char, 8> bytes;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  Add({bytes.data(), bytes.size()});
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  unsigned length = 0;
  TUNDISH_CHECK(EVP_DigestFinal_ex(context_->md, digest.data(), &length) == 1);
  TUNDISH_CHECK(length == digest.size());
  return digest;
}

std::string ToHex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(digest.size() * 2);
  for (const uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace tundish
