#include "runtime/base/ulid.h"

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/check.h"

namespace tundish {
namespace {

constexpr std::string_view kAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void FillRandom(void* data, size_t size) {
  // Requests of up to 256 bytes are never cut short (getrandom(2)).
  TUNDISH_CHECK(size <= 256);
  TUNDISH_CHECK(getrandom(data, size, 0) == static_cast<ssize_t>(size));
}

}  // namespace

std::string NewUlid(std::chrono::system_clock::time_point now) {
  const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  auto milliseconds = static_cast<uint64_t>(since_epoch.count());
  std::array<uint8_t, 16> random;
  FillRandom(random.data(), random.size());
  std::string ulid(26, '0');
  for (int i = 9; i >= 0; --i, milliseconds >>= 5) ulid[i] = kAlphabet[milliseconds & 31];
  for (int i = 0; i < 16; ++i) ulid[10 + i] = kAlphabet[random[i] & 31];
  return ulid;
}

bool IsUlid(std::string_view text) {
  return text.size() == 26 && text[0] <= '7' &&
         text.find_first_not_of(kAlphabet) == std::string_view::npos;
}

std::string RandomHex(int bytes) {
  std::vector<uint8_t> random(bytes);
  FillRandom(random.data(), random.size());
  std::string hex;
  for (const uint8_t byte : random) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace tundish
