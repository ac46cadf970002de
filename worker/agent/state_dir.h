#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tundish/v1/agent_state.pb.h"

namespace tundish::agent {

/// The folder an agent keeps what must survive it in, mode 0700, locked while the agent lives:
///
///     lock                    held with flock(2)
///     rank.sock               RankService
///     workers/ID/record.pb    WorkerRecord, 0600, replaced atomically; ID: see ProcessId
///     workers/ID/rank.log     standard output and error of the rank
///     tasks/                  files of data checks, gone when these end
///
/// Not thread-safe.
class StateDir {
 public:
  /// Log folders of ended workers that are kept for people to read.
  static constexpr size_t kLogsKept = 64;

  /// Makes the folder if need be and locks it. Errors: FailedPrecondition naming the folder if
  /// another agent has it, if it is not ours alone, or if its path is too long for a Unix socket.
  static absl::StatusOr<std::unique_ptr<StateDir>> Open(const std::filesystem::path& folder);

  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  /// Absolute.
  std::filesystem::path socket() const { return folder_ / "rank.sock"; }
  std::filesystem::path tasks() const { return folder_ / "tasks"; }
  std::filesystem::path log_of(std::string_view process_id) const;

  /// Makes the process's folder. Errors: InvalidArgument unless IsFileId(process_id).
  absl::Status AddWorker(std::string_view process_id);

  /// Writes the worker's record, durable against a crash of the agent (not of the host, which takes
  /// the worker along).
  absl::Status WriteRecord(const v1::WorkerRecord& record);

  /// Forgets the record and keeps the log; drops the oldest logs beyond kLogsKept.
  void DropRecord(std::string_view process_id);

  /// All records; one that makes no sense is logged and has nothing but its worker's id. Errors:
  /// FailedPrecondition naming the file or folder that cannot be read.
  absl::StatusOr<std::vector<v1::WorkerRecord>> ReadRecords() const;

 private:
  StateDir(std::filesystem::path folder, int lock);

  std::filesystem::path folder_;
  int lock_ = -1;
};

/// The id a process was started with: a spare's own, else its worker's.
const std::string& ProcessId(const v1::WorkerRecord& record);

/// True for 1 to 64 of [A-Za-z0-9_-]: an id that is safe as a file name.
bool IsFileId(std::string_view id);

/// At most the last `bytes` of a file, from the start of a line if one starts there, with bytes
/// that are not UTF-8 replaced by '?'. Empty if it cannot be read.
std::string ReadTail(const std::filesystem::path& file, size_t bytes);

}  // namespace tundish::agent
