#include "client/render/format.h"

#include <limits>

#include <gtest/gtest.h>

namespace tundish::client {
namespace {

TEST(FormatTest, Durations) {
  struct Case {
    double seconds;
    const char* want;
  };
  const Case cases[] = {
      {0, "0.0 s"},
      {0.44, "0.4 s"},
      {12.4, "12 s"},
      {59.6, "1 min 00 s"},
      {185, "3 min 05 s"},
      {7620, "2 h 07 min"},
      {-1, "-"},
      {std::numeric_limits<double>::quiet_NaN(), "-"},
      {std::numeric_limits<double>::infinity(), "-"},
  };
  for (const Case& c : cases) EXPECT_EQ(Duration(c.seconds), c.want);
}

TEST(FormatTest, PercentAndBytes) {
  EXPECT_EQ(Percent(0.8409), "84.1 %");
  EXPECT_EQ(Percent(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(12'897'484), "12.3 MiB");
  EXPECT_EQ(Bytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

TEST(FormatTest, PrintableDrivesNoTerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\r\n\x7f"), "a [31mb   ");
  EXPECT_EQ(Printable("ü\xc2\x9b"), "ü  ");
  EXPECT_EQ(Width("über"), 4u);
}

}  // namespace
}  // namespace tundish::client
