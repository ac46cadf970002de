#pragma once

#include <cstdint>
#include <vector>

#include "tundish/v1/job.pb.h"
#include "worker/data/decode.h"
#include "worker/data/resize.h"

namespace tundish::data {

/// How images become model input. Immutable.
struct TransformOptions {
  /// Edge of the square input, pixels, ≥ 1.
  int image_size = 224;
  /// Channels of the model, 1 or 3.
  int channels = 3;
  /// After scaling to 0..1; one value per channel or one for all; empty: 0.5.
  std::vector<float> mean;
  std::vector<float> std_dev;
  Filter filter = Filter::kBilinear;
  /// Evaluation: share of the shorter side that the centre square covers, in (0, 1].
  double crop_fraction = 1;
  v1::AugmentSpec augment;
};

/// Everything random about one training sample. All numbers are drawn in a fixed order whether they
/// are used or not, so that switching one augmentation on leaves the others as they were.
struct Draws {
  float area = 0;
  float aspect = 0;
  bool tall = false;
  float across = 0;
  float down = 0;
  bool flip_horizontally = false;
  bool flip_vertically = false;
  uint32_t quarter_turns = 0;
  float brightness = 0;
  float contrast = 0;
  float saturation = 0;
  /// Compared with the probabilities of grey, stretching and erasing.
  float grey = 0;
  float stretch = 0;
  float erase = 0;
  float erase_area = 0;
  float erase_aspect = 0;
  float erase_across = 0;
  float erase_down = 0;
};

/// The draws of the sample at `position` of the global order: by (seed, position) alone.
Draws DrawAugmentation(uint64_t seed, uint64_t position);

/// True when training takes another part of the image each time.
bool CropsAtRandom(const v1::AugmentSpec& augment);

/// The centre square that evaluation sees: the image scaled until its shorter side is image_size /
/// crop_fraction, then the middle image_size × image_size of it, rounded as timm's evaluation
/// transform rounds. Without random crops training sees it, too, with crop_fraction 1.
Box CenterBox(int width, int height, const TransformOptions& options, double crop_fraction);

/// A random crop with min_crop_area to all of the image's area and an aspect ratio of 3/4 to 4/3,
/// as far as the image has room for it.
Box RandomBox(int width, int height, const Draws& draws, double min_area);

/// The largest reduction (1, 2, 4 or 8) after which `box` still has `gap` · image_size pixels a
/// side. 1 for images that are not reducible.
int DenominatorFor(const ImageInfo& info, const Box& box, int image_size, double gap);

/// `box` of the full image in the coordinates of the image reduced by `denominator`.
Box Reduced(const Box& box, const ImageInfo& info, int denominator);

/// Changes the levels of a square of image_size × image_size in place, in this order: contrast
/// stretch, grey conversion, saturation, as options.augment says.
void ChangeLevels(uint8_t* square, int channels, const TransformOptions& options,
                  const Draws& draws);

/// Normalises a square of image_size × image_size with `channels` (1, or those of the model) into
/// `out_chw` [options.channels, image_size, image_size]; grey is repeated as often as the model
/// wants it. With `draws`: flips, quarter turns, brightness, contrast and erasing as
/// options.augment says.
void WritePixels(const uint8_t* square, int channels, const TransformOptions& options,
                 const Draws* draws, float* out_chw);

/// The value of `channel` out of one per channel, one for all or none (0.5).
float PerChannel(const std::vector<float>& values, size_t channel);

}  // namespace tundish::data
