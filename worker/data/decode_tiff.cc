#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <tiffio.h>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

constexpr tmsize_t kMaxAllocation = tmsize_t{1} << 30;

/// The bytes as libtiff reads them, and what it said when it could not.
struct Source {
  std::string_view bytes;
  uint64_t at = 0;
  std::array<char, 200> message{};
};

tmsize_t Read(thandle_t handle, void* out, tmsize_t count) {
  auto* source = static_cast<Source*>(handle);
  const uint64_t left = source->at < source->bytes.size() ? source->bytes.size() - source->at : 0;
  const auto got = static_cast<size_t>(std::min<uint64_t>(left, static_cast<uint64_t>(count)));
  if (got > 0) std::memcpy(out, source->bytes.data() + source->at, got);
  source->at += got;
  return static_cast<tmsize_t>(got);
}

tmsize_t Write(thandle_t, void*, tmsize_t) {
  return -1;
}

toff_t Seek(thandle_t handle, toff_t offset, int whence) {
  auto* source = static_cast<Source*>(handle);
  if (whence == SEEK_SET) source->at = offset;
  if (whence == SEEK_CUR) source->at += offset;
  if (whence == SEEK_END) source->at = source->bytes.size() + offset;
  return source->at;
}

int Close(thandle_t) {
  return 0;
}

toff_t Size(thandle_t handle) {
  return static_cast<Source*>(handle)->bytes.size();
}

int OnError(TIFF*, void* user_data, const char*, const char* format, va_list arguments) {
  auto* source = static_cast<Source*>(user_data);
  // The first message names the cause, later ones what followed from it.
  if (source->message[0] == '\0') {
    std::vsnprintf(source->message.data(), source->message.size(), format, arguments);
    // It may quote the file; reports are UTF-8.
    for (char& c : source->message) {
      if (c != '\0' && (c < ' ' || c > '~')) c = '?';
    }
  }
  return 1;  // Handled: nothing goes to stderr.
}

int OnWarning(TIFF*, void*, const char*, const char*, va_list) {
  return 1;
}

struct TiffCloser {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

std::unique_ptr<TIFF, TiffCloser> Open(Source& source) {
  TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, kMaxAllocation);
  TIFFOpenOptionsSetErrorHandlerExtR(options, OnError, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options, OnWarning, nullptr);
  // "m": not memory-mapped; "h" would read the header only.
  std::unique_ptr<TIFF, TiffCloser> tiff(TIFFClientOpenExt(
      "image", "rm", &source, Read, Write, Seek, Close, Size, nullptr, nullptr, options));
  TIFFOpenOptionsFree(options);
  return tiff;
}

}  // namespace

absl::StatusOr<Image> DecodeTiff(std::string_view bytes, const DecodeOptions& options) {
  Source source = {.bytes = bytes};
  const auto unreadable = [&source] {
    return absl::InvalidArgumentError(fmt::format(
        "unreadable TIFF: {}", source.message[0] != '\0' ? source.message.data() : "damaged"));
  };
  const auto tiff = Open(source);
  if (tiff == nullptr) return unreadable();
  uint32_t width = 0;
  uint32_t height = 0;
  if (TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width) != 1 ||
      TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height) != 1) {
    return unreadable();
  }
  if (absl::Status fits = CheckDimensions(width, height, options); !fits.ok()) return fits;
  std::array<char, 1024> why{};
  if (TIFFRGBAImageOK(tiff.get(), why.data()) != 1) {
    return absl::InvalidArgumentError(fmt::format("unreadable TIFF: {}", why.data()));
  }
  std::vector<uint32_t> raster(size_t{width} * height);
  constexpr int kStopOnError = 1;
  if (TIFFReadRGBAImageOriented(tiff.get(), width, height, raster.data(), ORIENTATION_TOPLEFT,
                                kStopOnError) != 1) {
    return unreadable();
  }
  Image image = MakeImage(static_cast<int>(width), static_cast<int>(height), 3);
  uint8_t* out = image.pixels.data();
  for (const uint32_t pixel : raster) {
    *out++ = TIFFGetR(pixel);
    *out++ = TIFFGetG(pixel);
    *out++ = TIFFGetB(pixel);
  }
  return image;
}

}  // namespace tundish::data
