#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/data/decode.h"
#include "worker/data/resize.h"

namespace tundish::data {
namespace {

/// The folder that make_pillow_cases.py filled; ctest names it.
std::string Folder() {
  const char* folder = std::getenv("TUNDISH_PILLOW_CASES");
  return folder == nullptr ? "" : folder;
}

Image ReadPnm(const std::string& name) {
  std::ifstream file(Folder() + "/" + name, std::ios::binary);
  std::string magic;
  int levels = 0;
  Image image;
  file >> magic >> image.width >> image.height >> levels;
  EXPECT_TRUE(file.good() && levels == 255) << name;
  file.get();
  image.channels = magic == "P5" ? 1 : 3;
  image.pixels.resize(image.row_bytes() * image.height);
  file.read(reinterpret_cast<char*>(image.pixels.data()),
            static_cast<std::streamsize>(image.pixels.size()));
  EXPECT_TRUE(file.good()) << name;
  return image;
}

void ExpectClose(const Image& got, const Image& want, int tolerance) {
  ASSERT_EQ(got.width, want.width);
  ASSERT_EQ(got.height, want.height);
  ASSERT_EQ(got.channels, want.channels);
  int worst = 0;
  for (size_t i = 0; i < got.pixels.size(); ++i) {
    worst = std::max(worst, std::abs(int{got.pixels[i]} - int{want.pixels[i]}));
  }
  EXPECT_LE(worst, tolerance);
}

void RunDecode(std::istream& words) {
  std::string file;
  std::string expected;
  int channels = 0;
  int tolerance = 0;
  ASSERT_TRUE(words >> file >> channels >> expected >> tolerance);
  const absl::StatusOr<std::string> bytes = ReadFile(Folder() + "/" + file);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const absl::StatusOr<Image> image = DecodeImage(*bytes, {.channels = channels});
  ASSERT_TRUE(image.ok()) << image.status();
  ExpectClose(*image, ReadPnm(expected), tolerance);
}

void RunResize(std::istream& words) {
  std::string source;
  std::string filter;
  std::string expected;
  Box box;
  int width = 0;
  int height = 0;
  ASSERT_TRUE(words >> source >> box.left >> box.top >> box.right >> box.bottom >> width >>
              height >> filter >> expected);
  const Filter kernel = filter == "bicubic" ? Filter::kBicubic : Filter::kBilinear;
  ExpectClose(Resize(ReadPnm(source), box, width, height, kernel), ReadPnm(expected), 1);
}

TEST(PillowTest, AgreesOnEveryCase) {
  if (Folder().empty()) GTEST_SKIP() << "TUNDISH_PILLOW_CASES is not set; run by ctest";
  std::ifstream cases(Folder() + "/cases.txt");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string kind;
    std::string name;
    words >> kind >> name;
    kind == "decode" ? RunDecode(words) : RunResize(words);
  }
  EXPECT_GE(count, 70);
}

}  // namespace
}  // namespace tundish::data
