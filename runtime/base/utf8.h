#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Protobuf writes a string that is no UTF-8 and then refuses to read it: every text that is cut, or
// comes from outside, passes through here before it is stored.
namespace tundish {

/// At most the first `most` bytes of `text`, cut between characters; bytes that are no UTF-8 become
/// '?'.
std::string Utf8Prefix(std::string_view text, size_t most);

/// At most the last `most` bytes of `text`, in the same way.
std::string Utf8Suffix(std::string_view text, size_t most);

}  // namespace tundish
