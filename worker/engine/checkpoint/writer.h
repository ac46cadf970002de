#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tundish/v1/rank.pb.h"
#include "worker/engine/checkpoint/shard_file.h"

namespace tundish::checkpoint {

/// Writes shards on a thread of its own, one after the other. A failed write is logged and costs
/// that checkpoint only. Deletes nothing: which checkpoints may go only the coordinator knows, by
/// its durable record. The training thread calls Write and Flush.
class Writer {
 public:
  /// `written` is called on the writer's thread when a shard is durable, with its request's
  /// job_epoch.
  explicit Writer(std::function<void(uint32_t job_epoch, const v1::CheckpointWritten&)> written);
  /// Finishes what was begun.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  struct Request {
    std::string artifact_root;
    /// This job's checkpoints, below the root.
    std::string checkpoints_folder;
    uint32_t job_epoch = 0;
    /// When training stood still for the snapshot.
    std::chrono::steady_clock::time_point stall_start;
    Snapshot snapshot;
  };

  /// Takes the request and returns, or first waits until the one before is durable: memory for one
  /// snapshot besides the one being made. Drops it when interrupted.
  void Write(Request request);

  /// Returns when everything is durable (or has failed), or when interrupted.
  void Flush();

  /// Ends waits in Write and Flush, now and until Resume. What was begun is still written. Any
  /// thread; does not wait.
  void Interrupt();
  void Resume();

 private:
  void Loop();
  void Handle(const Request& request, double stall_seconds);

  const std::function<void(uint32_t, const v1::CheckpointWritten&)> written_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Request> pending_;
  double pending_stall_seconds_ = 0;
  bool busy_ = false;
  bool closing_ = false;
  bool interrupted_ = false;
  std::thread thread_;  // Last: starts when all else is there.
};

/// "e3-step120".
std::string FolderName(uint32_t job_epoch, uint32_t step);

}  // namespace tundish::checkpoint
