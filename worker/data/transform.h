#pragma once

#include <cstdint>
#include <vector>

#include "tundish/v1/job.pb.h"
#include "worker/data/image.h"

namespace tundish::data {

enum class Filter { kBilinear, kBicubic };

/// A part of an image in its pixel coordinates; edges may fall between pixels.
struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// Resamples `box` of `image` (inside it, not empty) to width × height. Antialiased: when it
/// shrinks, the filter widens with the scale. Equal to Pillow's Image.resize(size, filter, box)
/// within 1 level (same filters, same order of passes, fixed-point weights).
Image Resize(const Image& image, const Box& box, int width, int height, Filter filter);

/// How images become model input. Immutable.
struct TransformOptions {
  /// Edge of the square input, pixels, ≥ 1.
  int image_size = 224;
  /// 1 or 3; equals Image::channels.
  int channels = 3;
  /// After scaling to 0..1; one value per channel or one for all; empty: 0.5.
  std::vector<float> mean;
  std::vector<float> std_dev;
  Filter filter = Filter::kBilinear;
  v1::AugmentSpec augment;
};

/// Length the shorter side of a decoded image must at least keep for `options` (for scaled
/// decoding): image_size, more when random crops enlarge parts of the image.
int WorkingSide(const TransformOptions& options);

/// The part of a decoded image that is kept in memory, as small as the transforms allow: without
/// random crops the centre square at image_size × image_size; with them the whole image, its
/// shorter side at most WorkingSide. Always applied, cached or not, so that caching changes no
/// pixel.
Image Prepare(const Image& decoded, const TransformOptions& options);

/// Evaluation: the centre square of a prepared image at image_size, normalised, written to
/// `out_chw` [channels, image_size, image_size].
void EvaluationPixels(const Image& prepared, const TransformOptions& options, float* out_chw);

/// Training: random resized crop, flips, quarter turns, brightness, contrast as options.augment
/// says, drawn from (seed, position in the global order) alone; then as above.
void TrainingPixels(const Image& prepared, const TransformOptions& options, uint64_t seed,
                    uint64_t position, float* out_chw);

}  // namespace tundish::data
