#include "worker/data/data_roots.h"

#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"

namespace tundish::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// The code of opening `path`, OK included.
absl::StatusCode Try(const DataRoots& roots, const fs::path& path, int flags = 0) {
  const absl::StatusOr<int> opened = roots.Open(path.string(), flags);
  if (opened.ok()) close(*opened);
  return opened.status().code();
}

TEST(DataRootsTest, NothingOutsideCanBeOpened) {
  const TempFolder folder;
  const fs::path top = folder.path();
  folder.Write("roots/a/image.png", "x");
  folder.Write("roots/b/image.png", "x");
  folder.Write("roots/ab/image.png", "x");
  folder.Write("secret", "x");
  const fs::path a = top / "roots/a";
  fs::create_symlink("image.png", a / "inside");
  fs::create_symlink("../../secret", a / "relative");
  fs::create_symlink(top / "secret", a / "absolute");
  fs::create_directory_symlink(top, a / "up");
  const auto roots = DataRoots::Parse(a.string() + ":" + (top / "roots/b/").string());
  ASSERT_TRUE(roots.ok()) << roots.status();
  struct Case {
    fs::path path;
    absl::StatusCode want;
  };
  const auto kOk = absl::StatusCode::kOk;
  const auto kDenied = absl::StatusCode::kPermissionDenied;
  for (const Case& c : {Case{a / "image.png", kOk},
                        {a / "inside", kOk},
                        {top / "roots/b/image.png", kOk},
                        {a / "../a/image.png", kOk},
                        {a / "gone.png", absl::StatusCode::kNotFound},
                        {top / "roots/ab/image.png", kDenied},
                        {a / "../../secret", kDenied},
                        {a / "relative", kDenied},
                        {a / "absolute", kDenied},
                        {a / "up/secret", kDenied},
                        {top / "secret", kDenied},
                        {"/etc/passwd", kDenied},
                        {"image.png", kDenied}}) {
    EXPECT_EQ(Try(*roots, c.path), c.want) << c.path;
  }
  EXPECT_EQ(Try(*roots, a, O_DIRECTORY), kOk);
  EXPECT_EQ(Try(*roots, a.string() + "/", O_DIRECTORY), kOk);
  EXPECT_EQ(Try(*roots, top, O_DIRECTORY), kDenied);
  EXPECT_THAT(std::string(roots->Open("/etc/passwd", 0).status().message()),
              HasSubstr("TUNDISH_DATA_ROOTS"));
}

TEST(DataRootsTest, WithoutRootsEverythingIsOpen) {
  const TempFolder folder;
  const std::string file = folder.Write("image.png", "x");
  EXPECT_EQ(Try(*DataRoots::Parse(""), file), absl::StatusCode::kOk);
  EXPECT_EQ(DataRoots::Parse("images").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tundish::data
