#include "worker/data/decode.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"
#include "worker/data/random.h"

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

ImagePart DecodeView(const std::string& bytes, const DecodeOptions& options, const View& view) {
  absl::StatusOr<ImagePart> part =
      DecodePart(bytes, options, [&](const ImageInfo&) { return view; });
  EXPECT_TRUE(part.ok()) << part.status();
  return part.ok() ? *std::move(part) : ImagePart();
}

ImageInfo InfoOf(const std::string& bytes, const DecodeOptions& options) {
  ImageInfo found;
  const auto part = DecodePart(bytes, options, [&](const ImageInfo& info) {
    found = info;
    return View{.region = {.width = info.width, .height = info.height}};
  });
  EXPECT_TRUE(part.ok()) << part.status();
  return found;
}

TEST(DecodeTest, APartHasThePixelsOfTheWhole) {
  constexpr int kWidth = 131;
  constexpr int kHeight = 97;
  const Image rgb = Pattern(kWidth, kHeight, 3);
  std::vector<std::pair<std::string, std::string>> files = {
      {"grey", EncodeJpeg(Pattern(kWidth, kHeight, 1))},
      {"4:2:0", EncodeJpeg(rgb)},
      {"4:4:4", EncodeJpeg(rgb, {.half_chroma = false})},
      {"progressive", EncodeJpeg(rgb, {.progressive = true})},
      {"PNG", EncodePng(rgb)},
      {"interlaced PNG", EncodePng(rgb, true)},
      {"BMP", EncodeBmp(rgb)}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    files.emplace_back("orientation " + std::to_string(orientation),
                       EncodeJpeg(rgb, {.orientation = orientation}));
  }
  CounterRandom random(1, Purpose::kAugmentation, 0);
  for (const auto& [name, bytes] : files) {
    const DecodeOptions options = {.channels = 3, .keep_grey = true};
    const ImageInfo info = InfoOf(bytes, options);
    for (const int denominator : {1, 2, 4, 8}) {
      if (denominator > 1 && !info.reducible) continue;
      const int width = info.reduced_width(denominator);
      const int height = info.reduced_height(denominator);
      const ImagePart whole =
          DecodeView(bytes, options, {denominator, {.width = width, .height = height}});
      ASSERT_TRUE(whole.whole()) << name;
      EXPECT_EQ(whole.full_width, width);
      for (int i = 0; i < 25; ++i) {
        Region region = {.left = static_cast<int>(random.NextBelow(width)),
                         .top = static_cast<int>(random.NextBelow(height))};
        region.width = 1 + static_cast<int>(random.NextBelow(width - region.left));
        region.height = 1 + static_cast<int>(random.NextBelow(height - region.top));
        SCOPED_TRACE(fmt::format("{} 1/{}: {} x {} at {}, {}", name, denominator, region.width,
                                 region.height, region.left, region.top));
        const ImagePart part = DecodeView(bytes, options, {denominator, region});
        ASSERT_TRUE(part.covers(region));
        EXPECT_EQ(part.full_height, height);
        bool equal = true;
        const auto channels = static_cast<size_t>(info.channels);
        for (int y = region.top; y < region.bottom(); ++y) {
          const uint8_t* got = part.image.row(y - part.top) + (region.left - part.left) * channels;
          const uint8_t* want = whole.image.row(y) + region.left * channels;
          equal = equal && std::equal(got, got + region.width * channels, want);
        }
        EXPECT_TRUE(equal);
      }
    }
  }
}

TEST(DecodeTest, PartsSaveWork) {
  const std::string bytes = EncodeJpeg(Pattern(400, 300, 1));
  const ImagePart part =
      DecodeView(bytes, {.channels = 1}, {1, {.left = 100, .top = 50, .width = 60, .height = 40}});
  EXPECT_LE(part.image.width, 60 + 3 * 16);
  EXPECT_EQ(part.image.height, 40);
  const ImagePart png = DecodeView(EncodePng(Pattern(400, 300, 1)), {.channels = 1},
                                   {1, {.top = 50, .width = 60, .height = 40}});
  EXPECT_EQ(png.image.height, 40);
}

TEST(DecodeTest, GreyFilesStayGreyOnRequest) {
  const Image grey = Pattern(20, 10, 1);
  for (const std::string& bytes : {EncodePng(grey), EncodePng16(grey), EncodeJpeg(grey)}) {
    EXPECT_EQ(InfoOf(bytes, {.channels = 3, .keep_grey = true}).channels, 1);
    EXPECT_EQ(InfoOf(bytes, {.channels = 3}).channels, 3);
    const auto kept = DecodeImage(bytes, {.channels = 3, .keep_grey = true});
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(kept->channels, 1);
    EXPECT_EQ(DecodeImage(bytes, {.channels = 3})->channels, 3);
  }
  const auto colour =
      DecodeImage(EncodePng(Pattern(20, 10, 3)), {.channels = 3, .keep_grey = true});
  EXPECT_EQ(colour->channels, 3);
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
