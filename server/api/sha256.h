#pragma once

#include <memory>
#include <openssl/evp.h>
#include <string>
#include <string_view>

namespace tundish::api {

/// A running SHA-256. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  void Add(std::string_view bytes);
  /// Lower-case hex. Call once.
  std::string Hex();

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace tundish::api
