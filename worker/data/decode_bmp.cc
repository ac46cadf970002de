#include <array>
#include <bit>
#include <cstdlib>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr size_t kCoreHeaderBytes = 12;
constexpr size_t kInfoHeaderBytes = 40;
constexpr uint32_t kUncompressed = 0;
constexpr uint32_t kBitFields = 3;

using Color = std::array<uint8_t, 3>;

absl::Status Unreadable(const std::string& why) {
  return absl::InvalidArgumentError(fmt::format("unreadable BMP: {}", why));
}

struct Header {
  uint32_t pixel_offset = 0;
  uint32_t header_bytes = 0;
  int64_t width = 0;
  int64_t height = 0;
  bool top_down = false;
  int bits = 0;
  uint32_t compression = kUncompressed;
  uint32_t palette_colors = 0;
};

class BmpReader {
 public:
  BmpReader(std::string_view bytes, const DecodeOptions& options)
      : bytes_(bytes), options_(options) {}

  absl::StatusOr<Image> Read() {
    for (const auto step :
         {&BmpReader::ReadHeader, &BmpReader::ReadMasks, &BmpReader::ReadPalette}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    // Rows are padded to four bytes.
    const uint64_t stride = (static_cast<uint64_t>(header_.width) * header_.bits + 31) / 32 * 4;
    if (!Holds(header_.pixel_offset, stride * static_cast<uint64_t>(header_.height))) {
      return absl::InvalidArgumentError("truncated BMP: the file ends early");
    }
    Image image = MakeImage(static_cast<int>(header_.width), static_cast<int>(header_.height), 3);
    for (int y = 0; y < image.height; ++y) {
      const int stored = header_.top_down ? y : image.height - 1 - y;
      ReadRow(bytes_.substr(header_.pixel_offset + stride * static_cast<uint64_t>(stored), stride),
              image.width, image.row(y));
    }
    return image;
  }

 private:
  bool Holds(uint64_t at, uint64_t count) const {
    return at <= bytes_.size() && count <= bytes_.size() - at;
  }

  /// Little-endian. The caller has checked that the bytes are there.
  uint32_t Number(size_t at, int size) const {
    uint32_t value = 0;
    for (int i = size - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes_[at + i]);
    return value;
  }

  absl::Status ReadHeader() {
    if (!Holds(0, kFileHeaderBytes + kCoreHeaderBytes)) {
      return absl::InvalidArgumentError("truncated BMP: no room for its header");
    }
    header_.pixel_offset = Number(10, 4);
    header_.header_bytes = Number(14, 4);
    if (header_.header_bytes == kCoreHeaderBytes) {
      header_.width = Number(18, 2);
      header_.height = Number(20, 2);
      header_.bits = static_cast<int>(Number(24, 2));
    } else if (header_.header_bytes >= kInfoHeaderBytes &&
               Holds(0, kFileHeaderBytes + kInfoHeaderBytes)) {
      header_.width = static_cast<int32_t>(Number(18, 4));
      const auto height = static_cast<int32_t>(Number(22, 4));
      header_.top_down = height < 0;
      header_.height = std::abs(int64_t{height});
      header_.bits = static_cast<int>(Number(28, 2));
      header_.compression = Number(30, 4);
      header_.palette_colors = Number(46, 4);
    } else {
      return Unreadable(fmt::format("header of {} bytes", header_.header_bytes));
    }
    if (header_.bits != 1 && header_.bits != 4 && header_.bits != 8 && header_.bits != 24 &&
        header_.bits != 32) {
      return Unreadable(
          fmt::format("{} bits per pixel; 1, 4, 8, 24 and 32 are read", header_.bits));
    }
    const bool masked = header_.compression == kBitFields && header_.bits == 32;
    if (header_.compression != kUncompressed && !masked) {
      return Unreadable(
          fmt::format("compression {}; only uncompressed files are read", header_.compression));
    }
    return CheckDimensions(header_.width, header_.height, options_);
  }

  absl::Status ReadMasks() {
    if (header_.compression != kBitFields) return absl::OkStatus();
    // Both the short header, followed by the masks, and the longer ones have them at this place.
    constexpr size_t kMasks = kFileHeaderBytes + kInfoHeaderBytes;
    if (!Holds(kMasks, 12)) return Unreadable("no room for its colour masks");
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t mask = Number(kMasks + 4 * c, 4);
      const int shift = std::countr_zero(mask);
      if (mask == 0 || shift % 8 != 0 || mask >> shift != 0xFF) {
        return Unreadable(fmt::format("colour mask {:#x}; expected whole bytes", mask));
      }
      byte_of_[c] = static_cast<size_t>(shift) / 8;
    }
    return absl::OkStatus();
  }

  absl::Status ReadPalette() {
    if (header_.bits > 8) return absl::OkStatus();
    const bool core = header_.header_bytes == kCoreHeaderBytes;
    const size_t entry_bytes = core ? 3 : 4;
    const uint32_t most = uint32_t{1} << header_.bits;
    const uint32_t colors = header_.palette_colors == 0 ? most : header_.palette_colors;
    const uint64_t start = kFileHeaderBytes + uint64_t{header_.header_bytes};
    if (colors > most || !Holds(start, uint64_t{colors} * entry_bytes)) {
      return Unreadable(fmt::format("palette of {} colours", colors));
    }
    for (uint32_t i = 0; i < colors; ++i) {
      const size_t at = start + i * entry_bytes;
      for (size_t c = 0; c < 3; ++c) palette_[i][c] = static_cast<uint8_t>(bytes_[at + 2 - c]);
    }
    return absl::OkStatus();
  }

  void ReadRow(std::string_view row, int width, uint8_t* out) const {
    const int bits = header_.bits;
    for (int x = 0; x < width; ++x, out += 3) {
      if (bits <= 8) {
        const auto bit = static_cast<size_t>(x) * static_cast<size_t>(bits);
        const int shift = 8 - bits - static_cast<int>(bit % 8);
        const int index = static_cast<uint8_t>(row[bit / 8]) >> shift & ((1 << bits) - 1);
        for (size_t c = 0; c < 3; ++c) out[c] = palette_[index][c];
      } else {
        const size_t pixel = static_cast<size_t>(x) * (bits / 8);
        for (size_t c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(row[pixel + byte_of_[c]]);
      }
    }
  }

  std::string_view bytes_;
  const DecodeOptions& options_;  // The caller's, for the length of one call.
  Header header_;
  std::array<size_t, 3> byte_of_ = {2, 1, 0};  // Stored blue first.
  std::array<Color, 256> palette_{};
};

}  // namespace

absl::StatusOr<Image> DecodeBmp(std::string_view bytes, const DecodeOptions& options) {
  return BmpReader(bytes, options).Read();
}

}  // namespace tundish::data
