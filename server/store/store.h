#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "server/store/pruning.h"
#include "server/store/write_batch.h"
#include "tundish/v1/job.pb.h"
#include "tundish/v1/state.pb.h"

namespace tundish::store {

/// A job as it was last written.
struct StoredJob {
  v1::Job job;
  /// Default-constructed (step 0) when none was written.
  v1::JobProgress progress;
  /// The one with the highest job_epoch; nothing before the first.
  std::optional<v1::Arrangement> arrangement;
  /// By number.
  std::vector<v1::Incident> incidents;
  /// By step, ascending.
  std::vector<v1::CheckpointRecord> checkpoints;
  /// Highest seq in the updates table; 0 if there are none.
  std::uint32_t last_seq = 0;
};

/// One record of configuration; see WriteBatch::PutSetting.
struct Setting {
  std::string kind;
  std::string name;
  std::string blob;
};

/// All the core needs at its start.
struct State {
  /// By job_id, so by age.
  std::map<std::string, StoredJob> jobs;
  std::vector<v1::RequestRecord> requests;
  std::vector<v1::NodeRecord> nodes;
  std::vector<Setting> settings;
};

struct Options {
  /// Batches waiting beyond this many bytes are refused with RESOURCE_EXHAUSTED.
  std::size_t queue_bytes = 64 * 1024 * 1024;
  /// Largest database file in pages of 4 KiB; 0: no limit of ours. Writes past it fail like a full
  /// disk.
  std::int64_t max_pages = 0;
};

/// The coordinator's durable state: one SQLite file in WAL mode, synchronous = FULL, locked against
/// a second coordinator. Own threads: a writer, which commits many batches with one fsync, and a
/// reader for streams that replay. All methods are thread-safe unless they say otherwise.
class Store {
 public:
  /// Called on the writer thread, in the order of Commit; must not block and must not call Flush or
  /// Close.
  using Done = std::function<void(absl::Status)>;
  using Updates = absl::StatusOr<std::vector<v1::JobUpdate>>;
  /// Called on the reader thread; same rules.
  using UpdatesDone = std::function<void(Updates)>;

  /// Opens the file, or makes it if neither it nor its log exists; brings an older schema forward.
  /// Blocks. The folder must exist. Errors: FAILED_PRECONDITION (another process has it open;
  /// schema of a newer version), DATA_LOSS (empty, truncated, damaged, not a database, not ours:
  /// names the file and what to do; nothing is changed), UNAVAILABLE or RESOURCE_EXHAUSTED (I/O
  /// error, disk full).
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::filesystem::path& path,
                                                     const Options& options = {});

  /// Close().
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Makes `batch` durable, then calls `done` with OK. On an error nothing of the batch is written:
  /// ALREADY_EXISTS (see WriteBatch), RESOURCE_EXHAUSTED (disk full, or too much waiting),
  /// UNAVAILABLE (I/O error). The store stays usable after each: later batches are tried afresh.
  /// After Close, `done` gets FAILED_PRECONDITION on the caller's thread.
  void Commit(WriteBatch batch, Done done);

  /// Returns when every batch committed before has been answered. Not from a Done.
  void Flush();

  /// Finishes what was committed, ends the threads, closes the file. Not from a Done. Idempotent.
  void Close();

  /// Everything not archived. Blocks; meant for the start, but sees a consistent snapshot at any
  /// time.
  absl::StatusOr<State> LoadState();

  /// Updates of the job with seq > after_seq, ascending, at most `limit` of them. Blocks on the
  /// disk: not for the core loop.
  Updates ReadUpdates(const std::string& job_id, std::uint32_t after_seq, int limit);

  /// The same on the reader thread. After Close, `done` gets FAILED_PRECONDITION on the caller's
  /// thread.
  void ReadUpdatesAsync(std::string job_id, std::uint32_t after_seq, int limit, UpdatesDone done);

  using Pruned = absl::StatusOr<PruneResult>;
  /// The following three run when the writer has nothing else to do, so commits never wait behind
  /// more than one of them. `done` is called on the writer thread; FAILED_PRECONDITION after Close.
  void PruneUpdates(PruneRequest request, std::function<void(Pruned)> done);
  void RemoveJob(std::string job_id, Done done);
  void RemoveAudit(std::chrono::system_clock::time_point before, Done done);

  /// Writes a copy of the database as it stands now to `file`, which must not exist; commits go on
  /// meanwhile. Blocks for as long as copying takes. On an error no file is left. Errors:
  /// ALREADY_EXISTS, RESOURCE_EXHAUSTED, UNAVAILABLE; DATA_LOSS if the database is damaged.
  absl::Status BackUp(const std::filesystem::path& file) const;

 private:
  struct Parts;
  explicit Store(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tundish::store
