#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "server/store/sqlite.h"
#include "server/store/write_batch.h"

namespace tundish::store {

/// The thread that writes: takes whatever has queued up, commits it as one transaction with one
/// fsync, answers in order.
class Writer {
 public:
  using Done = std::function<void(absl::Status)>;

  /// Prepares the statements and starts the thread.
  static absl::StatusOr<std::unique_ptr<Writer>> Start(Database database, std::size_t queue_bytes);

  /// Close().
  ~Writer();

  /// Thread-safe; see Store.
  void Commit(WriteBatch batch, Done done);
  /// Runs `work` on the thread between two commits, when nothing waits to be committed. `work` gets
  /// null if the writer closes before its turn comes.
  void WhenIdle(std::function<void(Database*)> work);
  void Flush();
  void Close();

 private:
  struct Pending {
    WriteBatch batch;
    Done done;
    /// OK until something went wrong.
    absl::Status status;
  };

  Writer(Database database, std::vector<Statement> statements, std::size_t queue_bytes);

  void Run();
  void CommitGroup(std::vector<Pending>& group);
  absl::Status WriteGroup(std::vector<Pending>& group);
  absl::Status ApplyOrUndo(Pending& pending);
  absl::Status Apply(const WriteBatch& batch);

  // Used on the thread only.
  std::optional<Database> database_;   // Empty when the thread has ended.
  std::vector<Statement> statements_;  // By WriteBatch::Kind; end before database_.

  const std::size_t queue_bytes_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable wake_;
  std::condition_variable answered_changed_;
  std::deque<Pending> queue_;
  std::deque<std::function<void(Database*)>> idle_work_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t submitted_ = 0;
  std::uint64_t answered_ = 0;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace tundish::store
