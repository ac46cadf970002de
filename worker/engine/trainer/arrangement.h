#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "worker/engine/device/backend.h"
#include "worker/engine/device/epoch_store.h"
#include "worker/engine/trainer/plan.h"

namespace tundish::trainer {

/// An arrangement of ranks was stopped while this one was working in it.
class ArrangementStopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The process groups of one job_epoch: the *row* (ranks with the same dp, which share a replica)
/// and the *column* (ranks with the same tp, which hold the same weights). The training thread
/// forms, uses and drops it; Abort may come from any thread at any time.
class Arrangement {
 public:
  Arrangement(uint32_t job_epoch, c10::intrusive_ptr<device::EpochStore> store);
  ~Arrangement();
  Arrangement(const Arrangement&) = delete;
  Arrangement& operator=(const Arrangement&) = delete;

  uint32_t job_epoch() const { return job_epoch_; }

  /// Meets the other ranks: returns once the groups are connected. Throws when aborted, before or
  /// meanwhile, or when the store fails.
  void Form(device::Backend& backend, const Place& place);

  /// Ends it: the store closes, connections break, every collective in flight or later throws, here
  /// and on the peers. Returns at once. Any number of times.
  void Abort() noexcept;

  /// All ranks are to stop after a step they agree on: this one says so in its control vector from
  /// now on. Any thread, any number of times.
  void RequestYield() noexcept { yield_requested_ = true; }
  bool yield_requested() const noexcept { return yield_requested_; }

  /// Throws ArrangementStopped once Abort was called: for long work without collectives.
  void ThrowIfAborted() const;

  /// Aborts and destroys the groups. Users of row() and column() (the c10d::Reducer, graphs that
  /// refer to the row) must be gone. Training thread only.
  void Drop() noexcept;

  /// Collectives begun on the groups. Any thread.
  uint64_t collectives() const;

  /// Null when the group has one member, or before Form.
  const std::shared_ptr<device::Communicator>& row() const { return row_; }
  const std::shared_ptr<device::Communicator>& column() const { return column_; }

 private:
  std::shared_ptr<device::Communicator> Create(device::Backend& backend,
                                               const device::GroupOptions& options);

  const uint32_t job_epoch_;
  std::atomic<bool> yield_requested_{false};
  const c10::intrusive_ptr<device::EpochStore> store_;
  mutable std::mutex mutex_;
  bool aborted_ = false;                          // Guarded by mutex_.
  std::shared_ptr<device::Communicator> row_;     // Written under mutex_ by the training thread.
  std::shared_ptr<device::Communicator> column_;  // Likewise.
};

}  // namespace tundish::trainer
