#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "worker/data/dataset.h"
#include "worker/data/image_pipeline.h"
#include "worker/data/mix.h"
#include "worker/data/order.h"
#include "worker/data/pixel_pool.h"
#include "worker/data/transform.h"

namespace tundish::data {

struct LoaderOptions {
  TransformOptions transform;
  /// Training only.
  MixOptions mix;
  /// training.seed: order and augmentation.
  uint64_t seed = 0;
  /// Samples per step over all replicas, ≥ 1. Evaluation: largest batch of one rank.
  uint32_t global_batch = 1;
  /// See SampleOrder.
  std::vector<double> sampling_weights;
  uint32_t repeats = 1;
  /// False: the loss takes samples as if their weight were 1 (it decides how often they come).
  bool loss_uses_sample_weights = true;
  /// Multiplies each sample's weight by its class's; empty: 1. Else one per class.
  std::vector<float> class_weights;
  /// Decoded images kept in memory, bytes; 0: none.
  uint64_t cache_bytes = uint64_t{256} << 20;
  /// Threads that read, decode and transform, ≥ 1.
  int threads = 1;
  /// Batches made ahead of the one last handed out: at least and at most, ≥ 1; see LookAhead.
  /// Bounds memory.
  int look_ahead = 2;
  int most_look_ahead = 2;
  /// Where batches lie; empty: plain memory.
  AllocatePixels allocate;
};

/// What a loader has done since it was made.
struct LoaderStats {
  /// Summed over threads.
  StageTimes stages;
  /// The reader stood in Next because no batch was complete.
  std::chrono::nanoseconds waited{0};
  uint64_t batches = 0;
  int threads = 0;
  /// Batches made ahead at the moment.
  int look_ahead = 0;
};

/// Fills loader options from a resolved spec: size and channels of the model, mean, std,
/// augmentation (training split only), seed, global batch, cache, look-ahead, class weights of
/// `dataset`. `threads` and `allocate` stay at their defaults.
LoaderOptions MakeLoaderOptions(const v1::JobSpec& spec, const Dataset& dataset, Split split);

/// One rank's slice of a step's global batch, or a batch of its part of the validation split.
struct Batch {
  /// Training: the step. Evaluation: number of the batch on this rank, from 0.
  uint32_t step = 0;
  /// Training: passes completed before the global batch's first sample.
  uint32_t data_epoch = 0;
  /// Positions in the global order; evaluation: indices into Dataset::validation().
  std::vector<uint64_t> positions;
  /// Indices into Dataset::samples(split).
  std::vector<uint32_t> samples;
  std::vector<int64_t> labels;
  /// Sample weight × class weight; evaluation: 1.
  std::vector<float> weights;
  /// Of the images mixed in; empty without mixing. A mixed sample's weight is shared out by the
  /// shares of the two images, each times its own weight: `weights` holds the first's part.
  std::vector<int64_t> partner_labels;
  std::vector<float> partner_weights;
  /// Sum of the weights, partners' included, over the whole *global* batch in position order
  /// (double, then the same on every rank): the divisor of the loss, known without communication.
  /// Evaluation: over this batch.
  double global_weight_sum = 0;
  /// [size(), channels, image_size, image_size], contiguous.
  PixelBuffer pixels;

  uint32_t size() const { return static_cast<uint32_t>(labels.size()); }
};

/// Makes batches ahead of time on threads of its own. What a batch holds depends only on (dataset,
/// options.transform, seed, global_batch, step, dp, degree): not on threads, look-ahead or cache.
///
/// One thread calls Start*, Next and Stop; Stop may also be called from another one to wake a
/// blocked Next. A read error of the medium is tried three times, 50 ms apart, before it is
/// reported.
class BatchLoader {
 public:
  /// `dataset` outlives the loader. Starts no thread.
  BatchLoader(const Dataset& dataset, Split split, LoaderOptions options);
  ~BatchLoader();  // Stops.
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Batches of steps first_step, … last_step − 1 for replica `dp` of `degree`. Stops what ran
  /// before; the cache stays. A slice may be empty (degree > global_batch).
  void StartTraining(uint32_t first_step, uint32_t last_step, uint32_t dp, uint32_t degree);
  /// Rank dp's contiguous part of the split, in order, every image once over all ranks, in batches
  /// of at most `batch_size`. Parts differ by one image at most and may be empty.
  void StartEvaluation(uint32_t batch_size, uint32_t dp, uint32_t degree);

  /// The next batch, blocking until it is there. Errors: OutOfRange after the last one; Cancelled
  /// after Stop; DataLoss or what ReadFile says, with the sample's name, when an image cannot be
  /// had: then every later Next fails the same until the next Start.
  absl::StatusOr<Batch> Next();

  /// Ends the threads, waiting for the images in their hands. Any number of times, any time.
  void Stop();

  /// Wakes a blocked Next, which then fails with Cancelled, as every Next until the next Start. Does
  /// not wait. Any thread, any time.
  void Interrupt();

  /// Bytes of decoded images held.
  uint64_t cached_bytes() const;
  /// Any thread.
  LoaderStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tundish::data
