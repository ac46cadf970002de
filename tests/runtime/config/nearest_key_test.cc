#include "runtime/config/nearest_key.h"

#include <gtest/gtest.h>

namespace tundish {
namespace {

TEST(EditDistanceTest, CountsInsertDeleteReplaceSwap) {
  struct Case {
    const char* a;
    const char* b;
    int want;
  };
  const Case cases[] = {
      {"", "", 0},           {"", "abc", 3},       {"abc", "", 3},           {"heads", "heads", 0},
      {"haeds", "heads", 1}, {"head", "heads", 1}, {"headss", "heads", 1},   {"beads", "heads", 1},
      {"Heads", "heads", 0}, {"ab", "ba", 1},      {"kitten", "sitting", 3},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(EditDistance(c.a, c.b), c.want) << c.a << " " << c.b;
    EXPECT_EQ(EditDistance(c.b, c.a), c.want) << c.b << " " << c.a;
  }
}

TEST(NearestKeyTest, TakesTheFirstOfEquals) {
  EXPECT_EQ(NearestKey("fodler", {"manifest", "folder", "classes"}), "folder");
  EXPECT_EQ(NearestKey("b", {"x", "y"}), "x");
  EXPECT_EQ(NearestKey("anything", {}), "");
  EXPECT_EQ(NearestKey(std::string(1 << 20, 'a'), {"a"}), "a");
}

}  // namespace
}  // namespace tundish
