#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

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

  /// Says where a job's durable stream stands; before any reader, and with `ended` once nothing
  /// more will come.
  void SetHead(const std::string& job_id, uint32_t seq, bool ended);

  /// Durable updates, in order; `ended` with the last ones of a job.
  void Publish(const std::string& job_id, const std::vector<v1::JobUpdate>& updates, bool ended);

  /// Starts to serve a reader; `sink` gets End() after the job's last update.
  ReaderId Add(const v1::WatchJobRequest& request, std::shared_ptr<UpdateSink> sink);
  /// The transport has taken something: more may be sent.
  void Drained(ReaderId reader);
  void Remove(ReaderId reader);
  /// Ends every reader: the coordinator is going down.
  void EndAll(const absl::Status& status);

  size_t reader_count() const { return readers_.size(); }

 private:
  struct Head {
    uint32_t seq = 0;
    bool ended = false;
  };
  struct Reader {
    ReaderId id = 0;
    v1::WatchJobRequest request;
    std::shared_ptr<UpdateSink> sink;
    /// Highest seq delivered or covered.
    uint32_t cursor = 0;
    /// replay_only: where it ends.
    std::optional<uint32_t> last;
    bool live = false;
    bool reading = false;
    /// Being put together: sent as one message.
    v1::WatchJobResponse message;
    size_t message_bytes = 0;
    /// The range not delivered and not yet reported; first 0: none.
    v1::DroppedRange dropped;
  };

  void Pump(Reader& reader);
  void Replayed(ReaderId id, absl::StatusOr<std::vector<v1::JobUpdate>> updates);
  void Deliver(Reader& reader, const v1::JobUpdate& update);
  void Drop(Reader& reader, uint32_t first, uint32_t last, const char* reason);
  void ReportDropped(Reader& reader);
  void Append(Reader& reader, v1::JobUpdate update);
  void FlushMessage(Reader& reader);
  /// Ends the reader if it has everything. True if so; the reader is gone then.
  bool EndIfComplete(Reader& reader);
  static bool Wanted(const v1::WatchJobRequest& request, const v1::JobUpdate& update);

  ReadUpdates read_;
  const size_t bound_bytes_;
  std::map<std::string, Head> heads_;
  std::map<ReaderId, Reader> readers_;
  ReaderId next_id_ = 1;
  /// Lets answers of the store that arrive after destruction do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tundish::jobs
