#include "runtime/base/utf8.h"

#include <algorithm>

namespace tundish {
namespace {

constexpr size_t kLongestCharacter = 4;

unsigned char ByteAt(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// A byte 10xxxxxx continues a character.
bool Continues(unsigned char byte) {
  return (byte & 0xc0) == 0x80;
}

/// Bytes of the character `text` begins with; 0 if it begins with none. RFC 3629: no overlong
/// forms, no surrogates, nothing above U+10FFFF.
size_t CharacterLength(std::string_view text) {
  const unsigned char first = ByteAt(text, 0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!Continues(ByteAt(text, i))) return 0;
  }
  const unsigned char second = ByteAt(text, 1);
  const bool outside = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                       (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return outside ? 0 : length;
}

std::string Cleaned(std::string_view text) {
  std::string clean(text);
  for (size_t at = 0; at < clean.size();) {
    const size_t length = CharacterLength(text.substr(at));
    if (length == 0) clean[at] = '?';
    at += std::max<size_t>(length, 1);
  }
  return clean;
}

}  // namespace

std::string Utf8Prefix(std::string_view text, size_t most) {
  if (text.size() <= most) return Cleaned(text);
  size_t end = most;
  for (size_t back = 1; back < kLongestCharacter && end > 0 && Continues(ByteAt(text, end));
       ++back) {
    --end;
  }
  return Cleaned(text.substr(0, end));
}

std::string Utf8Suffix(std::string_view text, size_t most) {
  if (text.size() <= most) return Cleaned(text);
  size_t begin = text.size() - most;
  for (size_t skipped = 1;
       skipped < kLongestCharacter && begin < text.size() && Continues(ByteAt(text, begin));
       ++skipped) {
    ++begin;
  }
  return Cleaned(text.substr(begin));
}

}  // namespace tundish
