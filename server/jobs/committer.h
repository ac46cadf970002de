#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <absl/status/status.h>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/store/store.h"

namespace tundish::jobs {

/// Lets effects leave only after the writes they stand for, and after everything asked for before
/// them. One batch is with the store at a time; what gathers meanwhile becomes the next, so a slow
/// disk makes batches larger, not queues longer. A batch that fails is tried again until it
/// succeeds: memory is ahead of the disk then, and nothing may leave. Lives on the core loop.
class Committer {
 public:
  /// Runs on the loop: OK when durable, or UNAVAILABLE if the coordinator closes before that.
  using Effect = std::function<void(const absl::Status&)>;

  /// `loop` runs one thread. `store` outlives this object. `on_commit` hears how long each batch
  /// took; may be empty.
  Committer(boost::asio::any_io_executor loop, store::Store& store,
            std::function<void(std::chrono::duration<double>)> on_commit = {});
  ~Committer();

  /// Never calls `effect` from within. An empty batch only keeps the order.
  void Commit(store::WriteBatch batch, Effect effect);

  /// Returns when everything committed so far is durable: what a reader was told is true for good.
  boost::asio::awaitable<absl::Status> Settled();

  /// Why the last attempt failed; OK when the disk works.
  const absl::Status& health() const { return health_; }
  /// Bytes not durable yet.
  size_t backlog_bytes() const { return open_.bytes() + sent_.bytes(); }

  /// Gives every effect that still waits UNAVAILABLE. Later Commits do nothing but that.
  void Close();

 private:
  void Advance();
  void SendBatch();
  void OnDone(const absl::Status& status);
  void RunEffects(const absl::Status& status);

  boost::asio::any_io_executor loop_;
  store::Store& store_;  // Outlives this object.
  std::function<void(std::chrono::duration<double>)> on_commit_;
  boost::asio::steady_timer retry_;
  store::WriteBatch open_;
  std::vector<Effect> open_effects_;
  store::WriteBatch sent_;
  std::vector<Effect> sent_effects_;
  std::chrono::steady_clock::time_point sent_at_;
  absl::Status health_;
  bool busy_ = false;
  bool closed_ = false;
  /// Lets answers that arrive after destruction do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tundish::jobs
