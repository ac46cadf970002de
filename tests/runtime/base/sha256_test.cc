#include "runtime/base/sha256.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tundish {
namespace {

TEST(Sha256Test, GivesThePublishedDigests) {
  const struct {
    std::vector<std::string_view> pieces;
    const char* want;
  } cases[] = {
      // FIPS 180-2, appendix B.
      {{}, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {{"abc"}, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {{"abcdbcdecdefdefgefghfghighij", "hijkijkljklmklmnlmnomnopnopq"},
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
  };
  for (const auto& c : cases) {
    Sha256 hash;
    for (const std::string_view piece : c.pieces) hash.Add(piece);
    EXPECT_EQ(ToHex(hash.Finish()), c.want);
  }
}

TEST(Sha256Test, ListsOfFieldsThatReadTheSameDiffer) {
  const auto digest = [](std::vector<std::string_view> fields) {
    Sha256 hash;
    for (const std::string_view field : fields) hash.AddField(field);
    return hash.Finish();
  };
  EXPECT_NE(digest({"ab", "c"}), digest({"a", "bc"}));
  EXPECT_EQ(digest({"ab", "c"}), digest({"ab", "c"}));
}

}  // namespace
}  // namespace tundish
