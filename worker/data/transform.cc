#include "worker/data/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "worker/data/decoders.h"
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

/// Zeroes (the mean) a rectangle of 2 % to a third of the area, twice as long as wide at most.
void Erase(const Draws& draws, int size, int channels, float* out_chw) {
  const double area = (0.02 + (1.0 / 3 - 0.02) * draws.erase_area) * size * size;
  const double aspect = 0.5 + 1.5 * draws.erase_aspect;
  const int wide = std::clamp(static_cast<int>(std::sqrt(area * aspect)), 1, size);
  const int high = std::clamp(static_cast<int>(std::sqrt(area / aspect)), 1, size);
  const auto left = static_cast<int>(draws.erase_across * static_cast<float>(size - wide + 1));
  const auto top = static_cast<int>(draws.erase_down * static_cast<float>(size - high + 1));
  for (int c = 0; c < channels; ++c) {
    for (int y = top; y < top + high; ++y) {
      std::fill_n(out_chw + (static_cast<ptrdiff_t>(c) * size + y) * size + left, wide, 0.0F);
    }
  }
}

/// Per channel: the levels below which and above which 1 % of the pixels lie become 0 and 255.
void Stretch(uint8_t* square, size_t count, int channels) {
  for (int c = 0; c < channels; ++c) {
    std::array<size_t, 256> histogram{};
    for (size_t i = 0; i < count; ++i) ++histogram[square[i * channels + c]];
    const size_t cut = count / 100;
    int low = 0;
    int high = 255;
    for (size_t below = histogram[0]; below <= cut && low < 255; below += histogram[++low]) {
    }
    for (size_t above = histogram[255]; above <= cut && high > 0; above += histogram[--high]) {
    }
    if (low >= high) continue;
    std::array<uint8_t, 256> level;
    for (int i = 0; i < 256; ++i) {
      const int stretched = (2 * 255 * (i - low) + high - low) / (2 * (high - low));
      level[i] = static_cast<uint8_t>(i <= low ? 0 : std::min(255, stretched));
    }
    for (size_t i = 0; i < count; ++i) square[i * channels + c] = level[square[i * channels + c]];
  }
}

/// Moves colours away from (share > 1) or towards their luma; 0 leaves grey.
void Saturate(uint8_t* square, size_t count, double share) {
  const auto factor = static_cast<int>(std::lround(share * 4096));
  for (uint8_t* rgb = square; rgb != square + 3 * count; rgb += 3) {
    const int luma = Luma(rgb[0], rgb[1], rgb[2]);
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(
          std::clamp(luma + (((rgb[c] - luma) * factor + 2048) >> 12), 0, 255));
    }
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
  draws.saturation = random.NextUniform(-1, 1);
  draws.grey = random.NextUniform();
  draws.stretch = random.NextUniform();
  draws.erase = random.NextUniform();
  draws.erase_area = random.NextUniform();
  draws.erase_aspect = random.NextUniform();
  draws.erase_across = random.NextUniform();
  draws.erase_down = random.NextUniform();
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

void ChangeLevels(uint8_t* square, int channels, const TransformOptions& options,
                  const Draws& draws) {
  const v1::AugmentSpec& augment = options.augment;
  const auto size = static_cast<size_t>(options.image_size);
  if (draws.stretch < augment.stretch_probability()) Stretch(square, size * size, channels);
  if (channels == 1) return;
  if (draws.grey < augment.grey_probability()) {
    Saturate(square, size * size, 0);
  } else if (augment.saturation() > 0) {
    Saturate(square, size * size, 1 + double{draws.saturation} * augment.saturation());
  }
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
  if (draws != nullptr && draws->erase < augment.erase_probability()) {
    Erase(*draws, size, options.channels, out_chw - count * options.channels);
  }
}

}  // namespace tundish::data
