#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tundish {

using Sha256Digest = std::array<uint8_t, 32>;

/// SHA-256 of a sequence of pieces. Not thread safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void Add(std::string_view bytes);
  /// Length first, so that no two lists of fields read the same.
  void AddField(std::string_view field);
  /// Eight bytes, little-endian.
  void AddNumber(uint64_t number);
  /// Ends the sequence; call once.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// Lower-case hex.
std::string ToHex(const Sha256Digest& digest);

}  // namespace tundish
