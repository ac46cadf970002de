#include "tests/worker/data/test_images.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <jpeglib.h>
#include <png.h>
#include <vector>

#include "runtime/base/check.h"
#include "worker/data/random.h"

namespace tundish::data {
namespace {

namespace fs = std::filesystem;

std::string EncodePngOfDepth(const Image& image, int depth, bool interlaced = false) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp self, png_bytep data, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(self))
            ->append(reinterpret_cast<const char*>(data), count);
      },
      nullptr);
  png_set_IHDR(png, info, image.width, image.height, depth,
               image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  std::vector<uint8_t> row;
  for (int pass = png_set_interlace_handling(png); pass > 0; --pass) {
    for (int y = 0; y < image.height; ++y) {
      row.clear();
      for (size_t i = 0; i < image.row_bytes(); ++i) {
        row.insert(row.end(), static_cast<size_t>(depth / 8), image.row(y)[i]);
      }
      png_write_row(png, row.data());
    }
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

void AppendNumber(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "tundish-data-XXXXXX").string();
  TUNDISH_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempFolder::Write(const std::string& name, std::string_view bytes) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file.string();
}

Image Pattern(int width, int height, int channels, uint32_t variant) {
  Image image = {.width = width, .height = height, .channels = channels};
  CounterRandom random(variant, Purpose::kAugmentation, 0);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const uint32_t smooth = 3 * x + 2 * y + 50 * c + 40 * variant;
        image.pixels.push_back(static_cast<uint8_t>(smooth % 200 + random.NextBelow(20)));
      }
    }
  }
  return image;
}

std::string EncodePng(const Image& image, bool interlaced) {
  return EncodePngOfDepth(image, 8, interlaced);
}

std::string EncodePng16(const Image& image) {
  return EncodePngOfDepth(image, 16);
}

std::string EncodeJpeg(const Image& image, const JpegForm& form) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type.
  jpeg_mem_dest(&encoder, &buffer, &size);
  encoder.image_width = image.width;
  encoder.image_height = image.height;
  encoder.input_components = image.channels;
  encoder.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, form.quality, TRUE);
  if (form.progressive) jpeg_simple_progression(&encoder);
  if (!form.half_chroma)
    encoder.comp_info[0].h_samp_factor = encoder.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&encoder, TRUE);
  if (form.orientation > 0) {
    std::string exif("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 26);
    AppendNumber(exif, static_cast<uint32_t>(form.orientation), 4);
    AppendNumber(exif, 0, 4);
    jpeg_write_marker(&encoder, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  for (int y = 0; y < image.height; ++y) {
    auto* row = const_cast<JSAMPROW>(image.row(y));
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string out(reinterpret_cast<const char*>(buffer), size);
  jpeg_destroy_compress(&encoder);
  std::free(buffer);
  return out;
}

std::string EncodeBmp(const Image& image) {
  TUNDISH_CHECK(image.channels == 3);
  const size_t stride = (image.row_bytes() + 3) / 4 * 4;
  std::string out = "BM";
  AppendNumber(out, static_cast<uint32_t>(54 + stride * image.height), 4);
  AppendNumber(out, 0, 4);
  AppendNumber(out, 54, 4);
  AppendNumber(out, 40, 4);
  AppendNumber(out, image.width, 4);
  AppendNumber(out, image.height, 4);
  AppendNumber(out, 1, 2);
  AppendNumber(out, 24, 2);
  out.append(24, '\0');
  for (int y = image.height - 1; y >= 0; --y) {
    for (int x = 0; x < image.width; ++x) {
      for (int c = 2; c >= 0; --c) out += static_cast<char>(image.row(y)[3 * x + c]);
    }
    out.append(stride - image.row_bytes(), '\0');
  }
  return out;
}

}  // namespace tundish::data
