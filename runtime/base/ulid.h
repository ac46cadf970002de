#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tundish {

/// A new ULID (github.com/ulid/spec): 26 characters of Crockford base 32, 48 bits of milliseconds of
/// `now`, then 80 random bits from the kernel. Sorts by time as a string. Thread-safe.
std::string NewUlid(std::chrono::system_clock::time_point now);

/// True if `text` has the form of a ULID.
bool IsUlid(std::string_view text);

/// `bytes` random bytes from the kernel as lower-case hex: secrets and tokens.
std::string RandomHex(int bytes);

}  // namespace tundish
