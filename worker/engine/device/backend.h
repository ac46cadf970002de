#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tundish::device {

/// What a group of ranks needs to meet.
struct GroupOptions {
  /// Unique among the groups of one store, equal on all members.
  std::string name;
  int rank = 0;
  int size = 1;
  /// Address this rank's data sockets bind to and peers connect to.
  std::string bind_address = "127.0.0.1";
  /// A collective that takes longer fails by itself.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
};

/// One process group that can be torn down while a collective is in flight. Collectives are called
/// by one thread, in the same order on all members; Abort by any. Collectives throw std::exception
/// when a peer is lost, the time is up or the group was aborted. Destroying a group whose peers are
/// in a collective waits for them unless it was aborted first.
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// The c10d group, for c10d::Reducer.
  virtual const c10::intrusive_ptr<c10d::ProcessGroup>& group() const = 0;

  /// Returns once every member of the group is connected with this rank; the group can be used, and
  /// aborted in the middle of a collective, from then on. Throws when a peer cannot be reached in
  /// the group's timeout, when the store's epoch ends, or when Abort is called, before or
  /// meanwhile. Call once, before the first collective, on the thread that uses the group.
  virtual void Connect() {}

  /// Fails everything in flight and later, here and (by the closed connections) on the peers. Does
  /// not wait. Any number of times.
  virtual void Abort() noexcept = 0;

  /// Sums `tensor` (contiguous, on the backend's device) in place; all members get the same bits.
  void AllReduceSum(at::Tensor tensor);
  /// Point to point, matched in order per pair of ranks.
  void Send(at::Tensor tensor, int to);
  void Receive(at::Tensor tensor, int from);

  /// Collectives and messages begun on this group by the functions above. Any thread.
  uint64_t begun() const { return begun_; }

 private:
  std::atomic<uint64_t> begun_ = 0;

  c10d::Backend& backend() const;
};

struct MemoryStatistics {
  /// Held by this process on the device (on CPU: resident memory).
  uint64_t used_bytes = 0;
};

/// One kind of device. Owned by the rank; outlives its communicators.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual at::Device device() const = 0;

  /// Makes this rank's end of a group and leaves its address in `store`. The group can be used once
  /// its Connect has returned. Throws when the store's epoch ends.
  virtual std::unique_ptr<Communicator> CreateGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupOptions& options) = 0;

  virtual MemoryStatistics Memory() const = 0;

  /// Returns when all work enqueued on the device by this thread is done. Nothing to do on CPU.
  virtual void Synchronize() = 0;
};

/// Opens device `name` ("cpu:0", "cuda:3") of kind `kind` ("cpu" or "cuda"). "cuda" loads
/// tundish_backend_cuda.so from the folder of the running program, so that CPU ranks do not pay for
/// it. Throws c10::Error naming the kind or the file when it is not available.
std::unique_ptr<Backend> OpenBackend(const std::string& kind, const std::string& name);

/// What a plug-in exports as "TundishOpenBackend". The caller owns the result.
using OpenBackendFunction = Backend* (*)(const char* name);

}  // namespace tundish::device
