#include "runtime/base/utf8.h"

#include <gtest/gtest.h>

namespace tundish {
namespace {

TEST(Utf8Test, CutsOnlyBetweenCharacters) {
  const std::string text =
      "ab\u20ac"
      "cd";  // € has 3 bytes
  const char* const prefixes[] = {"",
                                  "a",
                                  "ab",
                                  "ab",
                                  "ab",
                                  "ab\u20ac",
                                  "ab\u20ac"
                                  "c"};
  const char* const suffixes[] = {"",
                                  "d",
                                  "cd",
                                  "cd",
                                  "cd",
                                  "\u20ac"
                                  "cd",
                                  "b\u20ac"
                                  "cd"};
  for (size_t most = 0; most < text.size(); ++most) {
    SCOPED_TRACE(most);
    EXPECT_EQ(Utf8Prefix(text, most), prefixes[most]);
    EXPECT_EQ(Utf8Suffix(text, most), suffixes[most]);
  }
  EXPECT_EQ(Utf8Prefix(text, text.size()), text);
  EXPECT_EQ(Utf8Suffix(text, 100), text);
}

TEST(Utf8Test, ReplacesWhatIsNoCharacter) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\xff", "?"},
      {"a\x80z", "a?z"},             // continues nothing
      {"\xe2\x82", "??"},            // ends too early
      {"\xe2\x82z", "??z"},          // is broken off
      {"\xc0\xaf", "??"},            // overlong
      {"\xe0\x9f\xbf", "???"},       // overlong
      {"\xed\xa0\x80", "???"},       // a surrogate
      {"\xf4\x90\x80\x80", "????"},  // above U+10FFFF
      {"\xf0\x9f\x98\x80\xff", "\xf0\x9f\x98\x80?"},
      {"\xc3\xa4", "\xc3\xa4"},
  };
  for (const auto& [text, clean] : cases) {
    EXPECT_EQ(Utf8Prefix(text, 100), clean);
    EXPECT_EQ(Utf8Suffix(text, 100), clean);
  }
  const std::string noise(1000, '\x80');
  EXPECT_EQ(Utf8Prefix(noise, 10), std::string(7, '?'));
  EXPECT_EQ(Utf8Suffix(noise, 10), std::string(7, '?'));
}

}  // namespace
}  // namespace tundish
