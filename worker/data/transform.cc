#include "worker/data/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "worker/data/random.h"

namespace tundish::data {
namespace {

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
Curve Toned(const uint8_t* square, size_t count, int channels, double brightness, double contrast) {
  Curve curve = Linear();
  for (double& value : curve) value = std::clamp(value * brightness, 0.0, 1.0);
  std::array<std::array<uint32_t, 256>, 3> histogram{};
  for (size_t i = 0; i < count; ++i) {
    for (int c = 0; c < channels; ++c) ++histogram[c][*square++];
  }
  constexpr std::array<double, 3> kLuma = {0.299, 0.587, 0.114};
  double mean = 0;
  for (int c = 0; c < channels; ++c) {
    double sum = 0;
    for (int level = 0; level < 256; ++level) {
      sum += static_cast<double>(histogram[c][level]) * curve[level];
    }
    mean += (channels == 1 ? 1.0 : kLuma[c]) * sum;
  }
  mean /= static_cast<double>(count);
  for (double& value : curve) value = std::clamp((value - mean) * contrast + mean, 0.0, 1.0);
  return curve;
}

/// Input value of each level.
using Levels = std::array<float, 256>;

Levels Normalised(const Curve& curve, double mean, double std_dev) {
  Levels levels;
  for (int level = 0; level < 256; ++level) {
    levels[level] = static_cast<float>((curve[level] - mean) / std_dev);
  }
  return levels;
}

void WritePlane(const uint8_t* plane, int channels, int side, const Walk& walk,
                const Levels& levels, float* out) {
  const int step = walk.step_x * channels;
  for (int y = 0; y < side; ++y) {
    const uint8_t* from = plane + static_cast<ptrdiff_t>(walk.start + y * walk.step_y) * channels;
    for (int x = 0; x < side; ++x, from += step) *out++ = levels[*from];
  }
}

}  // namespace

float PerChannel(const std::vector<float>& values, size_t channel) {
  if (values.empty()) return 0.5F;
  return values.size() == 1 ? values[0] : values[channel];
}

Draws DrawAugmentation(uint64_t seed, uint64_t position) {
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

bool CropsAtRandom(const v1::AugmentSpec& augment) {
  return augment.min_crop_area() > 0 && augment.min_crop_area() < 1;
}

Box CenterBox(int width, int height, const TransformOptions& options, double crop_fraction) {
  const int size = options.image_size;
  const int shorter = std::min(width, height);
  const auto scaled_shorter = static_cast<int>(std::floor(size / crop_fraction));
  const auto scaled = [&](int side) {
    return static_cast<int>(int64_t{scaled_shorter} * side / shorter);
  };
  const auto span = [&](int side, double& low, double& high) {
    // Half a pixel goes to the even side.
    const double offset = std::nearbyint((scaled(side) - size) / 2.0);
    const double scale = static_cast<double>(side) / scaled(side);
    low = offset * scale;
    high = std::min<double>(side, (offset + size) * scale);
  };
  Box box;
  span(width, box.left, box.right);
  span(height, box.top, box.bottom);
  return box;
}

Box RandomBox(int width, int height, const Draws& draws, double min_area) {
  const double share = min_area + (1 - min_area) * draws.area;
  const double area = share * width * height;
  const double narrow = 0.75 + 0.25 * draws.aspect;
  const double aspect = draws.tall ? narrow : 1 / narrow;
  // Square roots only: they round equally on every machine.
  const double wide = std::clamp(std::sqrt(area * aspect), 1.0, static_cast<double>(width));
  const double high = std::clamp(std::sqrt(area / aspect), 1.0, static_cast<double>(height));
  const double left = draws.across * (width - wide);
  const double top = draws.down * (height - high);
  return {.left = left,
          .top = top,
          .right = std::min<double>(width, left + wide),
          .bottom = std::min<double>(height, top + high)};
}

int DenominatorFor(const ImageInfo& info, const Box& box, int image_size, double gap) {
  if (!info.reducible) return 1;
  const double room = std::min(box.width(), box.height()) / (gap * image_size);
  int denominator = 1;
  while (denominator < 8 && denominator * 2 <= room) denominator *= 2;
  return denominator;
}

Box Reduced(const Box& box, const ImageInfo& info, int denominator) {
  const int width = info.reduced_width(denominator);
  const int height = info.reduced_height(denominator);
  const double across = static_cast<double>(width) / info.width;
  const double down = static_cast<double>(height) / info.height;
  return {.left = box.left * across,
          .top = box.top * down,
          .right = std::min<double>(width, box.right * across),
          .bottom = std::min<double>(height, box.bottom * down)};
}

void WritePixels(const uint8_t* square, int channels, const TransformOptions& options,
                 const Draws* draws, float* out_chw) {
  TUNDISH_CHECK(channels == 1 || channels == options.channels);
  const v1::AugmentSpec& augment = options.augment;
  const int size = options.image_size;
  const size_t count = static_cast<size_t>(size) * static_cast<size_t>(size);
  Walk walk = Orient(size, false, false, 0);
  Curve curve = Linear();
  if (draws != nullptr) {
    walk = Orient(size, augment.horizontal_flip() && draws->flip_horizontally,
                  augment.vertical_flip() && draws->flip_vertically,
                  augment.rotate_90() ? draws->quarter_turns : 0);
    if (augment.brightness() > 0 || augment.contrast() > 0) {
      curve = Toned(square, count, channels, 1 + draws->brightness * augment.brightness(),
                    1 + draws->contrast * augment.contrast());
    }
  }
  for (int c = 0; c < options.channels; ++c, out_chw += count) {
    const float mean = PerChannel(options.mean, c);
    const float std_dev = PerChannel(options.std_dev, c);
    if (channels == 1 && c > 0 && mean == PerChannel(options.mean, c - 1) &&
        std_dev == PerChannel(options.std_dev, c - 1)) {
      std::memcpy(out_chw, out_chw - count, count * sizeof(float));
      continue;
    }
    WritePlane(square + (channels == 1 ? 0 : c), channels, size, walk,
               Normalised(curve, mean, std_dev), out_chw);
  }
}

}  // namespace tundish::data
