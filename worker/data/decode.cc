#include "worker/data/decode.h"

#include <utility>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "runtime/base/check.h"
#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

using namespace std::literals;

std::string FirstBytes(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes.substr(0, 4)) hex += fmt::format(" {:02x}", static_cast<uint8_t>(c));
  return hex;
}

using DecodeWhole = absl::StatusOr<Image> (*)(std::string_view, const DecodeOptions&);

/// For formats that are decoded whole. `choose` is asked all the same: it may keep what it learns.
absl::StatusOr<ImagePart> DecodeThenChoose(DecodeWhole decode, std::string_view bytes,
                                           const DecodeOptions& options, ChooseView choose) {
  absl::StatusOr<Image> image = decode(bytes, options);
  if (!image.ok()) return image.status();
  const int channels = options.channels == 1 ? 1 : image->channels;
  choose({.width = image->width, .height = image->height, .channels = channels});
  return WholePart(*std::move(image));
}

absl::StatusOr<ImagePart> DecodeByContent(std::string_view bytes, const DecodeOptions& options,
                                          ChooseView choose) {
  if (bytes.empty()) return absl::InvalidArgumentError("empty file");
  const std::string_view format = ImageFormat(bytes);
  if (format == "JPEG") return DecodeJpeg(bytes, options, choose);
  if (format == "PNG") return DecodePng(bytes, options, choose);
  if (format == "TIFF") return DecodeThenChoose(DecodeTiff, bytes, options, choose);
  if (format == "WebP") return DecodeThenChoose(DecodeWebp, bytes, options, choose);
  if (format == "BMP") return DecodeThenChoose(DecodeBmp, bytes, options, choose);
  if (bytes.starts_with("GIF8"sv)) {
    return absl::InvalidArgumentError("a GIF; expected JPEG, PNG, BMP, TIFF or WebP");
  }
  return absl::InvalidArgumentError(fmt::format(
      "not an image: starts with{}; expected JPEG, PNG, BMP, TIFF or WebP", FirstBytes(bytes)));
}

}  // namespace

std::string_view ImageFormat(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xD8\xFF"sv)) return "JPEG";
  if (bytes.starts_with("\x89PNG\r\n\x1A\n"sv)) return "PNG";
  for (const std::string_view start : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (bytes.starts_with(start)) return "TIFF";
  }
  if (bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv)) return "WebP";
  if (bytes.starts_with("BM"sv)) return "BMP";
  return {};
}

absl::StatusOr<ImagePart> DecodePart(std::string_view bytes, const DecodeOptions& options,
                                     ChooseView choose) {
  TUNDISH_CHECK(options.channels == 1 || options.channels == 3);
  absl::StatusOr<ImagePart> part = DecodeByContent(bytes, options, choose);
  if (!part.ok()) return part;
  const bool stays_grey = options.keep_grey && part->image.channels == 1;
  if (!stays_grey) part->image = WithChannels(std::move(part->image), options.channels);
  return part;
}

absl::StatusOr<Image> DecodeImage(std::string_view bytes, const DecodeOptions& options) {
  absl::StatusOr<ImagePart> part = DecodePart(bytes, options, [](const ImageInfo& info) {
    return View{.region = {.width = info.width, .height = info.height}};
  });
  if (!part.ok()) return part.status();
  return std::move(part->image);
}

absl::Status CheckDimensions(int64_t width, int64_t height, const DecodeOptions& options) {
  constexpr int64_t kMaxSide = int64_t{1} << 24;  // Also keeps the product below from overflowing.
  if (width < 1 || height < 1) {
    return absl::InvalidArgumentError(fmt::format("has no pixels: {} x {}", width, height));
  }
  if (width > kMaxSide || height > kMaxSide || width * height > options.max_pixels) {
    return absl::InvalidArgumentError(fmt::format(
        "too large: {} x {} pixels, at most {} are decoded", width, height, options.max_pixels));
  }
  return absl::OkStatus();
}

Image MakeImage(int width, int height, int channels) {
  Image image = {.width = width, .height = height, .channels = channels};
  image.pixels.resize(image.row_bytes() * static_cast<size_t>(height));
  return image;
}

Image WithChannels(Image image, int channels) {
  if (image.channels == channels) return image;
  Image out = MakeImage(image.width, image.height, channels);
  const size_t count = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  const uint8_t* from = image.pixels.data();
  uint8_t* to = out.pixels.data();
  if (channels == 1) {
    for (size_t i = 0; i < count; ++i, from += 3) to[i] = Luma(from[0], from[1], from[2]);
  } else {
    for (size_t i = 0; i < count; ++i, to += 3) to[0] = to[1] = to[2] = from[i];
  }
  return out;
}

}  // namespace tundish::data
