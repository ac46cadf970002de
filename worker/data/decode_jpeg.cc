#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE.
#include <jerror.h>
#include <jpeglib.h>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "runtime/base/check.h"
#include "worker/data/decoders.h"

namespace tundish::data {
namespace {

// More scans than any encoder writes; each costs a pass over the image.
constexpr int kMaxScans = 200;
// Columns decoded beside a region; four would do for chroma at half the resolution.
constexpr int kColumnMargin = 8;

/// libjpeg's decompressor with errors as return values. libjpeg leaves through longjmp, so no
/// method that calls it has a local with a destructor.
class JpegReader {
 public:
  JpegReader() {
    decoder_.err = jpeg_std_error(&errors_);
    decoder_.client_data = this;
    errors_.error_exit = [](j_common_ptr common) { Leave(common); };
    errors_.emit_message = [](j_common_ptr common, int level) {
      if (level < 0 && IsDamage(common->err->msg_code)) Leave(common);
    };
    progress_.progress_monitor = [](j_common_ptr common) {
      auto* decoder = reinterpret_cast<j_decompress_ptr>(common);
      if (decoder->input_scan_number <= kMaxScans) return;
      auto* self = static_cast<JpegReader*>(common->client_data);
      std::snprintf(self->message_.data(), self->message_.size(), "more than %d scans", kMaxScans);
      std::longjmp(self->escape_, 1);
    };
    jpeg_create_decompress(&decoder_);
    decoder_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&decoder_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool ReadHeader(std::string_view bytes) {
    if (setjmp(escape_) != 0) return false;
    jpeg_mem_src(&decoder_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&decoder_, JPEG_APP0 + 1, 0xFFFF);
    return jpeg_read_header(&decoder_, TRUE) == JPEG_HEADER_OK;
  }

  /// The stored image's size at 1/denominator; also sets up decoding at it.
  bool Scale(int denominator) {
    if (setjmp(escape_) != 0) return false;
    decoder_.scale_num = 1;
    decoder_.scale_denom = static_cast<unsigned>(denominator);
    jpeg_calc_output_dimensions(&decoder_);
    return true;
  }

  /// Channels of the rows to come, CMYK apart.
  int Channels(const DecodeOptions& options) const {
    if (options.channels == 1) return 1;
    return options.keep_grey && decoder_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
  }

  /// Starts decoding `region` of the scaled stored image. Rows to come begin at column
  /// first_column().
  bool Start(const Region& region, int channels) {
    if (setjmp(escape_) != 0) return false;
    decoder_.out_color_space = IsCmyk() ? JCS_CMYK : (channels == 1 ? JCS_GRAYSCALE : JCS_RGB);
    if (jpeg_start_decompress(&decoder_) != TRUE) return false;
    const auto width = static_cast<int>(decoder_.output_width);
    first_column_ = 0;
    if (region.width < width) {
      // Chroma is interpolated between neighbours, which the cut-off columns lack.
      const int left = std::max(0, region.left - kColumnMargin);
      auto start = static_cast<JDIMENSION>(left);
      auto count = static_cast<JDIMENSION>(std::min(width, region.right() + kColumnMargin) - left);
      jpeg_crop_scanline(&decoder_, &start, &count);
      first_column_ = static_cast<int>(start);
    }
    const auto skipped = static_cast<JDIMENSION>(region.top);
    return skipped == 0 || jpeg_skip_scanlines(&decoder_, skipped) == skipped;
  }

  int first_column() const { return first_column_; }

  bool ReadRow(uint8_t* row) {
    if (setjmp(escape_) != 0) return false;
    return jpeg_read_scanlines(&decoder_, &row, 1) == 1;
  }

  bool IsCmyk() const {
    return decoder_.jpeg_color_space == JCS_CMYK || decoder_.jpeg_color_space == JCS_YCCK;
  }

  int orientation() const {
    for (const auto* marker = decoder_.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != JPEG_APP0 + 1) continue;
      const int found = ExifOrientation(
          {reinterpret_cast<const char*>(marker->data), static_cast<size_t>(marker->data_length)});
      if (found != 1) return found;
    }
    return 1;
  }

  const jpeg_decompress_struct& decoder() const { return decoder_; }

  absl::Status error() const {
    const bool truncated = errors_.msg_code == JWRN_JPEG_EOF ||
                           errors_.msg_code == JWRN_HIT_MARKER ||
                           errors_.msg_code == JERR_INPUT_EOF;
    return absl::InvalidArgumentError(
        fmt::format("{} JPEG: {}", truncated ? "truncated" : "unreadable", message_.data()));
  }

 private:
  /// Warnings after which some pixels are invented.
  static bool IsDamage(int code) {
    return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
           code == JWRN_MUST_RESYNC;
  }

  [[noreturn]] static void Leave(j_common_ptr common) {
    auto* self = static_cast<JpegReader*>(common->client_data);
    common->err->format_message(common, self->message_.data());
    std::longjmp(self->escape_, 1);
  }

  jpeg_decompress_struct decoder_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_;
  std::array<char, JMSG_LENGTH_MAX> message_{};
  int first_column_ = 0;
};

/// One CMYK row to grey or RGB. Adobe's files, which are all there are, hold the inks inverted.
void ConvertCmykRow(const std::vector<uint8_t>& cmyk, bool inverted, int channels, uint8_t* out) {
  const auto light = [inverted](int ink) { return inverted ? ink : 255 - ink; };
  for (size_t i = 0; i + 3 < cmyk.size(); i += 4, out += channels) {
    const int key = light(cmyk[i + 3]);
    std::array<uint8_t, 3> rgb;
    for (size_t c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>((light(cmyk[i + c]) * key + 127) / 255);
    }
    if (channels == 1) {
      *out = Luma(rgb[0], rgb[1], rgb[2]);
    } else {
      std::ranges::copy(rgb, out);
    }
  }
}

}  // namespace

absl::StatusOr<ImagePart> DecodeJpeg(std::string_view bytes, const DecodeOptions& options,
                                     ChooseView choose) {
  JpegReader reader;
  if (!reader.ReadHeader(bytes)) return reader.error();
  const jpeg_decompress_struct& decoder = reader.decoder();
  if (absl::Status fits = CheckDimensions(decoder.image_width, decoder.image_height, options);
      !fits.ok()) {
    return fits;
  }
  const int orientation = reader.orientation();
  const bool swaps = orientation >= 5;
  const int channels = reader.Channels(options);
  const auto stored_width = static_cast<int>(decoder.image_width);
  const auto stored_height = static_cast<int>(decoder.image_height);
  const View view = choose({.width = swaps ? stored_height : stored_width,
                            .height = swaps ? stored_width : stored_height,
                            .channels = channels,
                            .reducible = true});
  if (!reader.Scale(view.denominator)) return reader.error();
  const auto scaled_width = static_cast<int>(decoder.output_width);
  const auto scaled_height = static_cast<int>(decoder.output_height);
  const Region stored = StoredRegion(view.region, scaled_width, scaled_height, orientation);
  TUNDISH_CHECK(stored.left >= 0 && stored.top >= 0 && stored.width > 0 && stored.height > 0 &&
                stored.right() <= scaled_width && stored.bottom() <= scaled_height);
  if (!reader.Start(stored, channels)) return reader.error();
  Image image = MakeImage(static_cast<int>(decoder.output_width), stored.height, channels);
  std::vector<uint8_t> cmyk;
  if (reader.IsCmyk()) cmyk.resize(size_t{4} * decoder.output_width);
  for (int y = 0; y < image.height; ++y) {
    if (!reader.ReadRow(cmyk.empty() ? image.row(y) : cmyk.data())) return reader.error();
    if (!cmyk.empty()) {
      ConvertCmykRow(cmyk, decoder.saw_Adobe_marker == TRUE, channels, image.row(y));
    }
  }
  const Region read = {.left = reader.first_column(),
                       .top = stored.top,
                       .width = image.width,
                       .height = image.height};
  const Region upright = UprightRegion(read, scaled_width, scaled_height, orientation);
  return ImagePart{.image = Upright(std::move(image), orientation),
                   .left = upright.left,
                   .top = upright.top,
                   .full_width = swaps ? scaled_height : scaled_width,
                   .full_height = swaps ? scaled_width : scaled_height};
}

}  // namespace tundish::data
