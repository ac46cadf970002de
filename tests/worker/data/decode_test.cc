#include "worker/data/decode.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"

namespace tundish::data {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(DecodeTest, LosslessFormatsGiveTheirPixelsBack) {
  const Image grey = Pattern(31, 17, 1);
  const Image rgb = Pattern(31, 17, 3);
  struct Case {
    const char* name;
    std::string bytes;
    const Image& want;
  };
  const Case cases[] = {
      {"grey PNG", EncodePng(grey), grey},
      {"RGB PNG", EncodePng(rgb), rgb},
      {"16-bit grey", EncodePng16(grey), grey},
      {"16-bit RGB", EncodePng16(rgb), rgb},
      {"BMP", EncodeBmp(rgb), rgb},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto image = DecodeImage(c.bytes, {.channels = c.want.channels});
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, 31);
    EXPECT_EQ(image->height, 17);
    EXPECT_EQ(image->pixels, c.want.pixels);
  }
}

TEST(DecodeTest, JpegIsReducedAsFarAsAllowed) {
  const std::string bytes = EncodeJpeg(Pattern(200, 120, 1));
  struct Case {
    int min_shorter_side;
    int want_height;
  };
  for (const Case& c : {Case{0, 120},
                        {121, 120},
                        {120, 120},
                        {61, 120},
                        {60, 60},
                        {31, 60},
                        {30, 30},
                        {15, 15},
                        {1, 15}}) {
    const auto image = DecodeImage(bytes, {.channels = 1, .min_shorter_side = c.min_shorter_side});
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->height, c.want_height) << c.min_shorter_side;
  }
}

TEST(DecodeTest, EveryBadFileHasAReason) {
  const std::string png = EncodePng(Pattern(64, 64, 3));
  const std::string jpeg = EncodeJpeg(Pattern(64, 64, 3));
  const std::string bmp = EncodeBmp(Pattern(64, 64, 3));
  std::string flipped = png;
  flipped[flipped.size() / 2] ^= 0x55;
  std::string bomb = EncodePng(Pattern(1, 1, 1));
  bomb.replace(16, 8, std::string("\x00\x01\x00\x00\x00\x01\x00\x00", 8));  // 65536 x 65536.
  struct Case {
    const char* name;
    std::string bytes;
    const char* want;
  };
  const Case cases[] = {
      {"empty", "", "empty file"},
      {"text", "hello", "not an image: starts with 68 65 6c 6c"},
      {"one byte", "x", "not an image: starts with 78;"},
      {"gif", "GIF89a....", "a GIF; expected"},
      {"half png", png.substr(0, png.size() / 2), "truncated PNG"},
      {"png header", png.substr(0, 20), "truncated PNG"},
      {"flipped png", flipped, "unreadable PNG"},
      {"half jpeg", jpeg.substr(0, jpeg.size() / 2), "truncated JPEG"},
      {"jpeg header", jpeg.substr(0, 20), "JPEG"},
      {"half bmp", bmp.substr(0, bmp.size() / 2), "truncated BMP"},
      {"bmp header", bmp.substr(0, 20), "BMP"},
      {"tiff", std::string("II*\0\x08\0\0\0", 8), "unreadable TIFF"},
      {"webp", std::string("RIFF\x10\0\0\0WEBPVP8 ", 16), "WebP"},
      {"bomb", bomb, "PNG"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto image = DecodeImage(c.bytes, {.channels = 3});
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(image.status()), HasSubstr(c.want));
  }
}

TEST(DecodeTest, LargeImagesAreRefusedBeforeDecoding) {
  for (const std::string& bytes : {EncodePng(Pattern(40, 30, 1)), EncodeJpeg(Pattern(40, 30, 1)),
                                   EncodeBmp(Pattern(40, 30, 3))}) {
    const auto image = DecodeImage(bytes, {.channels = 1, .max_pixels = 1199});
    ASSERT_FALSE(image.ok());
    EXPECT_THAT(Message(image.status()),
                HasSubstr("too large: 40 x 30 pixels, at most 1199 are decoded"));
    EXPECT_TRUE(DecodeImage(bytes, {.channels = 1, .max_pixels = 1200}).ok());
  }
}

TEST(DecodeTest, SurvivesAnyTruncationAndBitFlip) {
  for (const std::string& bytes :
       {EncodePng(Pattern(20, 20, 3)), EncodeJpeg(Pattern(20, 20, 3)),
        EncodeBmp(Pattern(20, 20, 3)), EncodePng16(Pattern(20, 20, 1))}) {
    for (size_t length = 0; length < bytes.size(); length += 7) {
      (void)DecodeImage(std::string_view(bytes).substr(0, length), {.channels = 3});
    }
    for (size_t i = 0; i < bytes.size(); i += 3) {
      std::string damaged = bytes;
      damaged[i] ^= 0x81;
      (void)DecodeImage(damaged, {.channels = 1, .max_pixels = 1 << 20});
    }
  }
}

TEST(ReadFileTest, SaysWhatIsWrong) {
  const TempFolder folder;
  const std::string file = folder.Write("a", "12345");
  EXPECT_EQ(*ReadFile(file), "12345");
  EXPECT_EQ(ReadFile(file + "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(ReadFile(folder.path().string()).status()), HasSubstr("not a regular file"));
  EXPECT_THAT(Message(ReadFile(file, 4).status()), HasSubstr("too large: 5 bytes, at most 4"));
}

}  // namespace
}  // namespace tundish::data
