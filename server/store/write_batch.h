#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tundish/v1/job.pb.h"
#include "tundish/v1/state.pb.h"

namespace tundish::store {

/// Writes that become durable together or not at all. Messages are serialized when they are added,
/// so the caller may change them afterwards. Not thread-safe; move it into Store::Commit.
class WriteBatch {
 public:
  /// Inserts or replaces by job_id.
  void PutJob(const v1::Job& job);
  /// Inserts or replaces by job_id.
  void PutProgress(const v1::JobProgress& progress);
  /// Inserts or replaces by (job_id, job_epoch).
  void PutArrangement(const v1::Arrangement& arrangement);
  /// Inserts (job_id, update.seq); the batch fails with ALREADY_EXISTS if it is there.
  void AppendUpdate(const std::string& job_id, const v1::JobUpdate& update);
  /// Inserts (tenant, request_id); the batch fails with ALREADY_EXISTS if it is there.
  void AddRequest(const v1::RequestRecord& request);
  /// Inserts or replaces by name.
  void PutNode(const v1::NodeRecord& node);
  void DeleteNode(const std::string& node);
  /// Inserts or replaces by (job_id, artifact.step).
  void PutCheckpoint(const v1::CheckpointRecord& checkpoint);
  void DeleteCheckpoint(const std::string& job_id, std::uint32_t step);
  /// Inserts or replaces by (job_id, incident.number).
  void PutIncident(const std::string& job_id, const v1::Incident& incident);
  void AppendAudit(const v1::AuditRecord& audit);
  /// Inserts or replaces by (kind, name): small records of configuration, such as quotas.
  void PutSetting(const std::string& kind, const std::string& name, std::string blob);
  void DeleteSetting(const std::string& kind, const std::string& name);

  /// Adds everything of `other`, after what is here.
  void Append(WriteBatch other) {
    bytes_ += other.bytes_;
    writes_.insert(writes_.end(), std::make_move_iterator(other.writes_.begin()),
                   std::make_move_iterator(other.writes_.end()));
  }

  bool empty() const { return writes_.empty(); }
  /// Keys and serialized messages together.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Writer;

  enum class Kind {
    kJob,
    kProgress,
    kArrangement,
    kUpdate,
    kRequest,
    kNode,
    kDeleteNode,
    kCheckpoint,
    kDeleteCheckpoint,
    kIncident,
    kAudit,
    kSetting,
    kDeleteSetting,
  };

  /// Columns of one statement, in its order: texts, then numbers, then the blob.
  struct Write {
    Kind kind;
    std::vector<std::string> texts;
    std::vector<std::int64_t> numbers;
    std::string blob;
  };

  void Add(Write write);

  std::vector<Write> writes_;
  std::size_t bytes_ = 0;
};

}  // namespace tundish::store
