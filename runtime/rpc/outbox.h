#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

namespace tundish::rpc {

/// The sending half of a streaming reactor: a queue of messages with a bound in bytes, written one
/// after the other, and an end that waits for the queue. gRPC allows one write at a time and none
/// after Finish(); this class keeps both rules. Thread-safe.
///
/// `Reactor` offers StartWrite(const Out*) and Finish(grpc::Status), as gRPC's server reactors do.
template <class Reactor, class Out>
class Outbox {
 public:
  /// `reactor` owns the outbox.
  Outbox(Reactor& reactor, size_t bound_bytes) : reactor_(reactor), bound_bytes_(bound_bytes) {}

  /// Queues `message`. False, and nothing queued, if the queue already holds `bound_bytes` or more,
  /// or if the stream has ended. A queue below its bound takes one message of any size.
  bool Send(Out message) {
    std::lock_guard lock(mutex_);
    if (end_ || finished_ || queued_bytes_ >= bound_bytes_) return false;
    Push(std::move(message));
    return true;
  }

  /// Queues `message` whatever the bound says. False if the stream has ended.
  bool SendAnyway(Out message) {
    std::lock_guard lock(mutex_);
    if (end_ || finished_) return false;
    Push(std::move(message));
    return true;
  }

  /// Ends the stream with `status` after everything queued has been written. The first call counts.
  void End(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (end_ || finished_) return;
    end_ = std::move(status);
    Advance();
  }

  /// Ends the stream as soon as the write in progress returns; the rest of the queue is dropped.
  void Abandon(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    while (queue_.size() > (writing_ ? 1u : 0u)) DropBack();
    end_ = std::move(status);
    Advance();
  }

  /// From OnWriteDone.
  void WriteDone(bool ok) {
    std::lock_guard lock(mutex_);
    writing_ = false;
    queued_bytes_ -= queue_.front().bytes;
    queue_.pop_front();
    if (!ok) {
      while (!queue_.empty()) DropBack();
      if (!end_) end_ = grpc::Status(grpc::StatusCode::CANCELLED, "the peer is gone");
    }
    Advance();
  }

  /// Runs `start` unless the stream has ended; no Finish() can come in between. For starting a
  /// read.
  template <class Start>
  void IfOpen(Start start) {
    std::lock_guard lock(mutex_);
    if (!finished_) start();
  }

  /// Bytes queued, the message being written included.
  size_t queued_bytes() const {
    std::lock_guard lock(mutex_);
    return queued_bytes_;
  }

 private:
  struct Entry {
    std::unique_ptr<Out> message;  // A stable address: gRPC reads it until the write is done.
    size_t bytes = 0;
  };

  void Push(Out message) {
    const size_t bytes = message.ByteSizeLong();
    queue_.push_back({std::make_unique<Out>(std::move(message)), bytes});
    queued_bytes_ += bytes;
    Advance();
  }

  void DropBack() {
    queued_bytes_ -= queue_.back().bytes;
    queue_.pop_back();
  }

  // The lock is held over StartWrite and Finish. gRPC may run OnDone from inside Finish, but
  // neither OnWriteDone nor OnReadDone from inside these calls, so the lock is never taken twice.
  void Advance() {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      reactor_.StartWrite(queue_.front().message.get());
    } else if (end_) {
      finished_ = true;
      reactor_.Finish(*end_);
    }
  }

  Reactor& reactor_;  // Owns this object.
  const size_t bound_bytes_;
  mutable std::mutex mutex_;
  std::deque<Entry> queue_;
  size_t queued_bytes_ = 0;
  std::optional<grpc::Status> end_;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace tundish::rpc
