#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "server/jobs/stream_filter.h"
#include "tundish/v1/job.pb.h"
#include "tundish/v1/job_service.pb.h"

namespace tundish::jobs {

/// Where a reader's updates go. Called on the core loop; implementations outlive their StreamHub
/// reader (shared).
class UpdateSink {
 public:
  virtual ~UpdateSink() = default;
  virtual void Send(v1::WatchJobResponse message) = 0;
  /// After everything sent.
  virtual void End(const absl::Status& status) = 0;
  /// Bytes sent but not yet taken by the transport.
  virtual size_t queued_bytes() const = 0;
};

/// The same for a reader of every job.
class AllUpdatesSink {
 public:
  virtual ~AllUpdatesSink() = default;
  virtual void Send(v1::WatchAllResponse message) = 0;
  virtual void End(const absl::Status& status) = 0;
  virtual size_t queued_bytes() const = 0;
};

/// Reads stored updates (seq > after_seq, ascending, at most limit) off the loop and calls back on
/// it.
using ReadUpdates =
    std::function<void(const std::string& job_id, uint32_t after_seq, int limit,
                       std::function<void(absl::StatusOr<std::vector<v1::JobUpdate>>)> done)>;

/// Joins replay and live for every reader of a job's stream: each seq once, or inside a `dropped`
/// range. A reader that lags behind loses metrics and logs beyond its bound, never events, and
/// never delays anybody. Lives on the core loop.
class StreamHub {
 public:
  using ReaderId = uint64_t;

  /// `bound_bytes` per reader.
  StreamHub(ReadUpdates read, size_t bound_bytes);
  ~StreamHub();

  /// Says where a job's durable stream stands; before any reader of it, and with `ended` once
  /// nothing more will come. Readers of every job begin with a job that is new here.
  void SetHead(const std::string& job_id, const std::string& tenant, uint32_t seq, bool ended);
  /// The job is gone for good.
  void Forget(const std::string& job_id);

  /// Durable updates, in order; `ended` with the last ones of a job.
  void Publish(const std::string& job_id, const std::vector<v1::JobUpdate>& updates, bool ended);

  /// Starts to serve a reader; `sink` gets End() after the job's last update. `tensor` is the job's
  /// tensor-parallel degree. The request has passed StreamFilter::Check.
  ReaderId Add(const v1::WatchJobRequest& request, int tensor, std::shared_ptr<UpdateSink> sink);
  /// Starts to serve a reader of every job. It ends when the reader leaves or EndAll is called.
  ReaderId AddAll(const v1::WatchAllRequest& request, std::shared_ptr<AllUpdatesSink> sink);
  /// The transport has taken something: more may be sent.
  void Drained(ReaderId reader);
  void Remove(ReaderId reader);
  /// Ends every reader: the coordinator is going down.
  void EndAll(const absl::Status& status);

  /// Readers of one job, those on behalf of readers of every job included.
  size_t reader_count() const { return readers_.size(); }

 private:
  struct Head {
    std::string tenant;
    uint32_t seq = 0;
    bool ended = false;
    std::set<ReaderId> readers;
  };
  struct Reader {
    ReaderId id = 0;
    std::string job_id;
    StreamFilter filter;
    std::shared_ptr<UpdateSink> sink;
    /// The reader of every job it belongs to; 0: none.
    ReaderId group = 0;
    /// Highest seq delivered or covered.
    uint32_t cursor = 0;
    /// replay_only: where it ends.
    std::optional<uint32_t> last;
    bool live = false;
    bool reading = false;
    /// Waits for its turn to replay; see Group.
    bool parked = false;
    /// Being put together: sent as one message.
    v1::WatchJobResponse message;
    size_t message_bytes = 0;
    /// The range not delivered and not yet reported; first 0: none.
    v1::DroppedRange dropped;
  };
  /// A reader of every job: one Reader per job that goes on, all with one sink. Few replay at a
  /// time, so that a thousand jobs' histories are not in memory at once.
  struct Group {
    v1::WatchAllRequest request;
    std::map<std::string, uint32_t> after;
    std::shared_ptr<AllUpdatesSink> sink;
    std::set<ReaderId> members;
    std::set<ReaderId> replaying;
    std::deque<ReaderId> parked;
  };
  class GroupSink;

  Reader& NewReader(const std::string& job_id, uint32_t cursor, std::shared_ptr<UpdateSink> sink);
  void Join(ReaderId group_id, Group& group, const std::string& job_id, uint32_t cursor);
  void StartParked(ReaderId group_id);
  void Erase(ReaderId id);
  /// Reads on while the reader keeps up. The reader may be gone afterwards.
  void Pump(Reader& reader);
  void Replayed(ReaderId id, absl::StatusOr<std::vector<v1::JobUpdate>> updates);
  void Replay(Reader& reader, const v1::JobUpdate& update);
  void Deliver(Reader& reader, const v1::JobUpdate& update);
  void Drop(Reader& reader, uint32_t first, uint32_t last, const std::string& reason);
  void ReportDropped(Reader& reader);
  void Append(Reader& reader, v1::JobUpdate update);
  void FlushMessage(Reader& reader);
  /// Ends the reader if it has everything. True if so; the reader is gone then.
  bool EndIfComplete(Reader& reader);

  ReadUpdates read_;
  const size_t bound_bytes_;
  std::map<std::string, Head> heads_;
  std::map<ReaderId, Reader> readers_;
  std::map<ReaderId, Group> groups_;
  ReaderId next_id_ = 1;
  /// Lets answers of the store that arrive after destruction do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tundish::jobs
