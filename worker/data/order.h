#pragma once

#include <cstdint>
#include <vector>

namespace tundish::data {

/// A half-open run of positions in the global sample order.
struct PositionRange {
  uint64_t first = 0;
  uint32_t count = 0;
  bool operator==(const PositionRange&) const = default;
};

/// The global order of training samples: an endless sequence in which every run [e·n, (e+1)·n) is a
/// permutation of the n samples, keyed by (seed, e). Position p is sample `IndexAt(p)` of
/// `Dataset::train()`. It depends on nothing else, so it is the same at every DP degree and after
/// every restart, and the whole cursor is one number.
///
/// Permutation: a Feistel network with Philox as its round function over the smallest power of two
/// ≥ n, walked until it falls below n (Black and Rogaway, "Ciphers with arbitrary finite domains",
/// 2002). Constant memory, any position in about a microsecond. Immutable, so thread safe.
///
/// With weights a run of n positions holds each sample as often as its share of the weights says,
/// rounded down or up: n evenly spaced points fall on the samples laid end to end, each as long as
/// its weight, in an order shuffled once; the points move on from data epoch to data epoch by the
/// golden ratio, so that what one epoch leaves out comes soon; and the permutation above spreads
/// them over the epoch. Costs eight bytes per sample, held once.
///
/// With repeats r each sample of the sequence is given r times in a row, so a data epoch of n
/// positions holds n / r of them and every r epochs hold all.
class SampleOrder {
 public:
  /// `samples` in [1, 2^31]; `weights` empty (all equal) or one > 0 per sample; `repeats` ≥ 1.
  SampleOrder(uint64_t seed, uint32_t samples, const std::vector<double>& weights = {},
              uint32_t repeats = 1);

  /// Sample index in [0, samples) at a global position.
  uint32_t IndexAt(uint64_t position) const;
  /// Passes completed before `position`: position / samples.
  uint32_t DataEpochOf(uint64_t position) const;
  uint32_t samples() const { return samples_; }

 private:
  uint32_t Permute(uint32_t value, uint32_t data_epoch) const;
  uint32_t PermuteOnce(uint32_t value, uint32_t data_epoch) const;
  uint32_t WeightedIndex(uint32_t slot, uint32_t data_epoch) const;

  uint64_t seed_;
  uint32_t samples_;
  uint32_t repeats_;
  /// Where the shuffled samples end on the line of weights; empty without weights.
  std::vector<uint64_t> ends_;
  int low_bits_;
  int high_bits_;
};

/// Steps that see `epochs` passes over `samples` with `global_batch` samples each:
/// ceil(epochs · samples / global_batch). The last batch runs into the pass after the last one, so
/// every step has exactly `global_batch` samples. global_batch > 0.
uint64_t TotalSteps(uint64_t epochs, uint64_t samples, uint64_t global_batch);

/// The first step whose batch ends data epoch `data_epoch` (0-based): after it, every sample of
/// that pass has been seen. Evaluation "after every data epoch" happens after committing this step.
uint64_t LastStepOfDataEpoch(uint64_t data_epoch, uint64_t samples, uint64_t global_batch);

/// Step k covers positions [k·B, (k+1)·B); replica `dp` of `degree` takes the contiguous part
/// [k·B + B·dp/degree, k·B + B·(dp+1)/degree), rounded down, so slices differ by one sample at most
/// and their concatenation over dp is the global batch. 0 ≤ dp < degree.
PositionRange RowSlice(uint64_t step, uint32_t global_batch, uint32_t dp, uint32_t degree);

}  // namespace tundish::data
