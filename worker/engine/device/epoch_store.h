#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tundish::device {

/// The rendezvous store of one job_epoch. All c10d::Store calls are thread-safe and throw when the
/// job_epoch is over.
class EpochStore : public c10d::Store {
 public:
  /// Ends the epoch on this rank: pending and later calls throw at once. Any thread, any number of
  /// times.
  virtual void Close() noexcept = 0;
};

}  // namespace tundish::device
