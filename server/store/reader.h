#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace tundish::store {

/// The read connection and the thread for reads that must not block their caller. Thread-safe.
class Reader {
 public:
  static std::unique_ptr<Reader> Start(Database database);
  /// Close().
  ~Reader();

  /// See Store.
  absl::StatusOr<State> LoadState();
  Store::Updates ReadUpdates(const std::string& job_id, std::uint32_t after_seq, int limit);
  void ReadUpdatesAsync(std::string job_id, std::uint32_t after_seq, int limit,
                        Store::UpdatesDone done);
  /// Answers what was asked before, then ends the thread and the connection.
  void Close();

 private:
  explicit Reader(Database database) : database_(std::move(database)) {}

  void Run();

  std::mutex database_mutex_;
  std::optional<Database> database_;  // Empty when closed.

  std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace tundish::store
