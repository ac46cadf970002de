#include "worker/data/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "worker/data/random.h"

namespace tundish::data {
namespace {

bool CropsAtRandom(const v1::AugmentSpec& augment) {
  return augment.min_crop_area() > 0 && augment.min_crop_area() < 1;
}

Box CenterSquare(const Image& image) {
  const int side = std::min(image.width, image.height);
  const int left = (image.width - side) / 2;
  const int top = (image.height - side) / 2;
  return {.left = static_cast<double>(left),
          .top = static_cast<double>(top),
          .right = static_cast<double>(left + side),
          .bottom = static_cast<double>(top + side)};
}

/// Everything random about one training sample. All numbers are drawn in a fixed order whether they
/// are used or not, so that switching one augmentation on leaves the others as they were.
struct Draws {
  float area;
  float aspect;
  bool tall;
  float across;
  float down;
  bool flip_horizontally;
  bool flip_vertically;
  uint32_t quarter_turns;
  float brightness;
  float contrast;
};

Draws Draw(uint64_t seed, uint64_t position) {
  CounterRandom random(seed, Purpose::kAugmentation, position);
  Draws draws;
  draws.area = random.NextUniform();
  draws.aspect = random.NextUniform();
  draws.tall = random.NextBool();
  draws.across = random.NextUniform();
  draws.down = random.NextUniform();
  draws.flip_horizontally = random.NextBool();
  draws.flip_vertically = random.NextBool();
  draws.quarter_turns = random.NextBelow(4);
  draws.brightness = random.NextUniform(-1, 1);
  draws.contrast = random.NextUniform(-1, 1);
  return draws;
}

/// A part with min_area to all of the image's area and an aspect ratio of 3/4 to 4/3, as far as the
/// image has room for it. Square roots only: they round equally on every machine.
Box RandomCrop(const Image& image, const Draws& draws, double min_area) {
  const double share = min_area + (1 - min_area) * draws.area;
  const double area = share * image.width * image.height;
  const double narrow = 0.75 + 0.25 * draws.aspect;
  const double aspect = draws.tall ? narrow : 1 / narrow;
  const double width = std::clamp(std::sqrt(area * aspect), 1.0, static_cast<double>(image.width));
  const double height =
      std::clamp(std::sqrt(area / aspect), 1.0, static_cast<double>(image.height));
  const double left = draws.across * (image.width - width);
  const double top = draws.down * (image.height - height);
  return {.left = left,
          .top = top,
          .right = std::min<double>(image.width, left + width),
          .bottom = std::min<double>(image.height, top + height)};
}

/// Where the pixel that ends up at (x, y) comes from: index = start + x · step_x + y · step_y.
struct Walk {
  int start = 0;
  int step_x = 0;
  int step_y = 0;
};

Walk Orient(int side, bool flip_x, bool flip_y, uint32_t quarter_turns) {
  Walk walk = {.start = 0, .step_x = 1, .step_y = side};
  const int last = side - 1;
  for (uint32_t turn = 0; turn < quarter_turns; ++turn) {
    // Counter-clockwise: the output's row y is the input's column last - y.
    walk = {
        .start = walk.start + last * walk.step_x, .step_x = walk.step_y, .step_y = -walk.step_x};
  }
  if (flip_x) walk = {walk.start + last * walk.step_x, -walk.step_x, walk.step_y};
  if (flip_y) walk = {walk.start + last * walk.step_y, walk.step_x, -walk.step_y};
  return walk;
}

/// Tone curve of one channel: 8-bit level → 0..1.
using Curve = std::array<double, 256>;

Curve Linear() {
  Curve curve;
  for (int level = 0; level < 256; ++level) curve[level] = level / 255.0;
  return curve;
}

/// Brightness scales, contrast stretches around the mean luma after that; both clip to 0..1.
Curve Toned(const Image& image, double brightness, double contrast) {
  Curve curve = Linear();
  for (double& value : curve) value = std::clamp(value * brightness, 0.0, 1.0);
  std::array<std::array<uint64_t, 256>, 3> histogram{};
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) ++histogram[i % channels][image.pixels[i]];
  constexpr std::array<double, 3> kLuma = {0.299, 0.587, 0.114};
  double mean = 0;
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int level = 0; level < 256; ++level) {
      sum += static_cast<double>(histogram[c][level]) * curve[level];
    }
    mean += (channels == 1 ? 1.0 : kLuma[c]) * sum;
  }
  mean /= static_cast<double>(image.width) * image.height;
  for (double& value : curve) value = std::clamp((value - mean) * contrast + mean, 0.0, 1.0);
  return curve;
}

float PerChannel(const std::vector<float>& values, size_t channel) {
  if (values.empty()) return 0.5F;
  return values.size() == 1 ? values[0] : values[channel];
}

/// Writes square `image` along `walk` as normalised planes.
void WriteChw(const Image& image, const Walk& walk, const Curve& curve,
              const TransformOptions& options, float* out) {
  const int side = image.width;
  const int channels = image.channels;
  for (int c = 0; c < channels; ++c) {
    const double mean = PerChannel(options.mean, c);
    const double std_dev = PerChannel(options.std_dev, c);
    std::array<float, 256> value;
    for (int level = 0; level < 256; ++level) {
      value[level] = static_cast<float>((curve[level] - mean) / std_dev);
    }
    const uint8_t* plane = image.pixels.data() + c;
    for (int y = 0; y < side; ++y) {
      int index = (walk.start + y * walk.step_y) * channels;
      for (int x = 0; x < side; ++x, index += walk.step_x * channels) *out++ = value[plane[index]];
    }
  }
}

}  // namespace

int WorkingSide(const TransformOptions& options) {
  if (!CropsAtRandom(options.augment)) return options.image_size;
  // A crop of the smallest area still has about image_size pixels a side.
  return static_cast<int>(
      std::ceil(options.image_size / std::sqrt(double{options.augment.min_crop_area()})));
}

Image Prepare(const Image& decoded, const TransformOptions& options) {
  const int size = options.image_size;
  if (!CropsAtRandom(options.augment)) {
    return Resize(decoded, CenterSquare(decoded), size, size, options.filter);
  }
  const int shorter = std::min(decoded.width, decoded.height);
  const int wanted = WorkingSide(options);
  if (shorter <= wanted) return decoded;
  const auto scaled = [&](int side) {
    return std::max(1, static_cast<int>(std::lround(static_cast<double>(side) * wanted / shorter)));
  };
  const Box whole = {.right = static_cast<double>(decoded.width),
                     .bottom = static_cast<double>(decoded.height)};
  return Resize(decoded, whole, scaled(decoded.width), scaled(decoded.height), options.filter);
}

void EvaluationPixels(const Image& prepared, const TransformOptions& options, float* out_chw) {
  TUNDISH_CHECK(prepared.channels == options.channels);
  const int size = options.image_size;
  const Walk straight = Orient(size, false, false, 0);
  if (prepared.width == size && prepared.height == size) {
    WriteChw(prepared, straight, Linear(), options, out_chw);
    return;
  }
  const Image square = Resize(prepared, CenterSquare(prepared), size, size, options.filter);
  WriteChw(square, straight, Linear(), options, out_chw);
}

void TrainingPixels(const Image& prepared, const TransformOptions& options, uint64_t seed,
                    uint64_t position, float* out_chw) {
  TUNDISH_CHECK(prepared.channels == options.channels);
  const v1::AugmentSpec& augment = options.augment;
  const Draws draws = Draw(seed, position);
  const int size = options.image_size;
  Image cropped;
  const Image* square = &prepared;
  if (CropsAtRandom(augment)) {
    const Box crop = RandomCrop(prepared, draws, augment.min_crop_area());
    cropped = Resize(prepared, crop, size, size, options.filter);
    square = &cropped;
  }
  TUNDISH_CHECK(square->width == size && square->height == size);
  const bool tones = augment.brightness() > 0 || augment.contrast() > 0;
  const Curve curve = tones ? Toned(*square, 1 + draws.brightness * augment.brightness(),
                                    1 + draws.contrast * augment.contrast())
                            : Linear();
  const Walk walk = Orient(size, augment.horizontal_flip() && draws.flip_horizontally,
                           augment.vertical_flip() && draws.flip_vertically,
                           augment.rotate_90() ? draws.quarter_turns : 0);
  WriteChw(*square, walk, curve, options, out_chw);
}

}  // namespace tundish::data
