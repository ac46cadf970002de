#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <png.h>
#include <utility>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

constexpr png_alloc_size_t kMaxChunkBytes = png_alloc_size_t{8} << 20;

/// libpng's reader with errors as return values. libpng leaves through longjmp, so no method that
/// calls it has a local with a destructor.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool ReadHeader() {
    if (info_ == nullptr || setjmp(escape_) != 0) return false;
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // CheckDimensions says which are too many.
    png_set_read_fn(png_, this, OnRead);
    png_read_info(png_, info_);
    return true;
  }

  /// Asks for 8-bit grey or RGB without alpha; answers the channels that will come, 0 on error.
  int Start(int wanted_channels) {
    if (setjmp(escape_) != 0) return 0;
    const int type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (png_get_bit_depth(png_, info_) < 8 && (type & PNG_COLOR_MASK_COLOR) == 0) {
      png_set_expand_gray_1_2_4_to_8(png_);
    }
    if (png_get_bit_depth(png_, info_) == 16) png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    if (wanted_channels == 3 && (type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return png_get_channels(png_, info_);
  }

  bool ReadRows(png_bytepp rows) {
    if (setjmp(escape_) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  /// The next row of an image that is not interlaced.
  bool ReadRow(png_bytep row) {
    if (setjmp(escape_) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }

  bool interlaced() const { return png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE; }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

  absl::Status error() const {
    return absl::InvalidArgumentError(
        fmt::format("{} PNG: {}", truncated_ ? "truncated" : "unreadable", message_.data()));
  }

 private:
  static void OnError(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_.data(), message, self->message_.size() - 1);
    std::longjmp(self->escape_, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep out, size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) {
      self->truncated_ = true;
      png_error(png, "the file ends early");
    }
    std::memcpy(out, self->rest_.data(), count);
    self->rest_.remove_prefix(count);
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string_view rest_;
  std::jmp_buf escape_;
  std::array<char, 200> message_{};
  bool truncated_ = false;
};

}  // namespace

absl::StatusOr<ImagePart> DecodePng(std::string_view bytes, const DecodeOptions& options,
                                    ChooseView choose) {
  PngReader reader(bytes);
  if (!reader.ReadHeader()) return reader.error();
  if (absl::Status fits = CheckDimensions(reader.width(), reader.height(), options); !fits.ok()) {
    return fits;
  }
  const int channels = reader.Start(options.keep_grey ? 1 : options.channels);
  if (channels == 0) return reader.error();
  const auto width = static_cast<int>(reader.width());
  const auto height = static_cast<int>(reader.height());
  const Region wanted =
      choose({.width = width, .height = height, .channels = options.channels == 1 ? 1 : channels})
          .region;
  const int top = reader.interlaced() ? 0 : wanted.top;
  const int bottom = reader.interlaced() ? height : wanted.bottom();
  Image image = MakeImage(width, bottom - top, channels);
  if ((channels != 1 && channels != 3) || reader.row_bytes() != image.row_bytes()) {
    return absl::InvalidArgumentError("unreadable PNG: unknown pixel layout");
  }
  if (reader.interlaced()) {
    std::vector<png_bytep> rows(static_cast<size_t>(height));
    for (int y = 0; y < height; ++y) rows[y] = image.row(y);
    if (!reader.ReadRows(rows.data())) return reader.error();
  } else {
    // Rows above are decoded into the first one's place: each needs the one before it.
    for (int y = 0; y < bottom; ++y) {
      if (!reader.ReadRow(image.row(std::max(0, y - top)))) return reader.error();
    }
  }
  return ImagePart{
      .image = std::move(image), .top = top, .full_width = width, .full_height = height};
}

}  // namespace tundish::data
