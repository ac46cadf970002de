#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/engine/device/backend.h"
#include "worker/engine/model/parameter.h"

namespace tundish::trainer {

/// Groups of parameters whose gradients are reduced together, in the order in which backward makes
/// them: from the last parameter to the first. A pure function of the sizes, so that the layout,
/// and with it the order of additions, is the same in every arrangement. The first bucket is small:
/// communication starts early. `bytes` per parameter; every bucket but the last holds at least
/// `bucket_bytes` (the first: a quarter of it).
std::vector<std::vector<size_t>> LayOutBuckets(const std::vector<int64_t>& bytes,
                                               int64_t bucket_bytes);

/// Sums gradients over a column while backward runs, by c10d::Reducer. The layout never changes and
/// nothing is divided: the loss already carries the global weight sum. Registers hooks on the
/// parameters; destroy it before the group it was made with, and after Arrangement::Abort when a
/// reduction may be in flight.
class GradientReducer {
 public:
  GradientReducer(std::vector<model::Parameter>& parameters, device::Communicator& column);
  ~GradientReducer();

  /// The next backward is the step's last: its end waits until every gradient is the column's sum.
  /// Backwards before it only accumulate.
  void ArmForLastBackward();

  /// Told of every bucket once its sum is there, on whichever thread; null: nobody is. Set between
  /// backwards.
  using OnBucket = std::function<void(size_t bytes, std::chrono::steady_clock::time_point start,
                                      std::chrono::steady_clock::time_point end)>;
  void set_on_bucket(OnBucket on_bucket);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tundish::trainer
