#include "server/jobs/stream_hub.h"

#include <algorithm>
#include <utility>

namespace tundish::jobs {
namespace {

constexpr int kReplayBatch = 512;
constexpr size_t kMessageBytes = 256 << 10;

}  // namespace

StreamHub::StreamHub(ReadUpdates read, size_t bound_bytes)
    : read_(std::move(read)), bound_bytes_(bound_bytes) {}

StreamHub::~StreamHub() = default;

void StreamHub::SetHead(const std::string& job_id, uint32_t seq, bool ended) {
  heads_[job_id] = {seq, ended};
}

void StreamHub::Publish(const std::string& job_id, const std::vector<v1::JobUpdate>& updates,
                        bool ended) {
  Head& head = heads_[job_id];
  if (!updates.empty()) head.seq = updates.back().seq();
  head.ended = head.ended || ended;
  for (auto next = readers_.begin(); next != readers_.end();) {
    Reader& reader = (next++)->second;  // it may end below
    if (reader.request.job_id() != job_id) continue;
    if (!reader.live) {  // it reads them from the store
      Pump(reader);
      continue;
    }
    for (const v1::JobUpdate& update : updates) {
      if (update.seq() > reader.cursor) Deliver(reader, update);
    }
    FlushMessage(reader);
    EndIfComplete(reader);
  }
}

StreamHub::ReaderId StreamHub::Add(const v1::WatchJobRequest& request,
                                   std::shared_ptr<UpdateSink> sink) {
  const ReaderId id = next_id_++;
  Reader& reader = readers_[id];
  reader.id = id;
  reader.request = request;
  reader.sink = std::move(sink);
  reader.cursor = request.after_seq();
  if (request.replay_only()) reader.last = heads_[request.job_id()].seq;
  Pump(reader);
  return id;
}

void StreamHub::Drained(ReaderId id) {
  const auto found = readers_.find(id);
  if (found != readers_.end() && !found->second.live) Pump(found->second);
}

void StreamHub::Remove(ReaderId id) {
  readers_.erase(id);
}

void StreamHub::EndAll(const absl::Status& status) {
  for (auto& [id, reader] : std::exchange(readers_, {})) {
    ReportDropped(reader);
    FlushMessage(reader);
    reader.sink->End(status);
  }
}

/// Reads on while the reader keeps up; joins it to the live updates once it has everything durable.
void StreamHub::Pump(Reader& reader) {
  if (reader.live || reader.reading) return;
  if (reader.cursor >= heads_[reader.request.job_id()].seq) {
    reader.live = true;
    EndIfComplete(reader);
    return;
  }
  if (EndIfComplete(reader)) return;
  if (reader.sink->queued_bytes() >= bound_bytes_ / 2) return;  // Drained() comes back to it
  reader.reading = true;
  read_(reader.request.job_id(), reader.cursor, kReplayBatch,
        [this, id = reader.id, alive = std::weak_ptr<bool>(alive_)](auto updates) {
          if (!alive.expired()) Replayed(id, std::move(updates));
        });
}

void StreamHub::Replayed(ReaderId id, absl::StatusOr<std::vector<v1::JobUpdate>> updates) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  Reader& reader = found->second;
  reader.reading = false;
  if (!updates.ok()) {
    reader.sink->End(updates.status());
    readers_.erase(found);
    return;
  }
  const uint32_t head = reader.last.value_or(heads_[reader.request.job_id()].seq);
  const uint32_t before = reader.cursor;
  for (const v1::JobUpdate& update : *updates) {
    if (update.seq() > head) break;  // durable, but its turn to be published has not come
    if (update.seq() > reader.cursor + 1) {
      Drop(reader, reader.cursor + 1, update.seq() - 1, "retention");
    }
    Deliver(reader, update);
  }
  if (reader.cursor == before) Drop(reader, before + 1, head, "retention");
  FlushMessage(reader);
  Pump(reader);
}

bool StreamHub::Wanted(const v1::WatchJobRequest& request, const v1::JobUpdate& update) {
  switch (update.body_case()) {
    case v1::JobUpdate::kEvent:
      return !request.without_events();
    case v1::JobUpdate::kMetric:
      return !request.without_metrics();
    case v1::JobUpdate::kLog:
      return !request.without_logs();
    default:
      return true;
  }
}

void StreamHub::Deliver(Reader& reader, const v1::JobUpdate& update) {
  const uint32_t seq = update.seq();
  if (!Wanted(reader.request, update)) {
    Drop(reader, seq, seq, "filter");
  } else if (reader.live && !update.has_event() &&
             reader.sink->queued_bytes() + reader.message_bytes >= bound_bytes_) {
    Drop(reader, seq, seq, "slow_reader");
  } else {
    ReportDropped(reader);
    reader.cursor = seq;
    Append(reader, update);
  }
}

/// Neighbouring ranges of one reason become one; a reader hears of it before its next update.
void StreamHub::Drop(Reader& reader, uint32_t first, uint32_t last, const char* reason) {
  if (reader.dropped.first() != 0 && reader.dropped.reason() != reason) ReportDropped(reader);
  if (reader.dropped.first() == 0) {
    reader.dropped.set_first(first);
    reader.dropped.set_reason(reason);
  }
  reader.dropped.set_last(last);
  reader.cursor = last;
}

void StreamHub::ReportDropped(Reader& reader) {
  if (reader.dropped.first() == 0) return;
  v1::JobUpdate update;
  *update.mutable_dropped() = std::exchange(reader.dropped, {});
  Append(reader, std::move(update));
}

void StreamHub::Append(Reader& reader, v1::JobUpdate update) {
  reader.message_bytes += update.ByteSizeLong();
  *reader.message.add_updates() = std::move(update);
  if (reader.message_bytes >= kMessageBytes) FlushMessage(reader);
}

void StreamHub::FlushMessage(Reader& reader) {
  if (reader.message.updates().empty()) return;
  reader.sink->Send(std::exchange(reader.message, {}));
  reader.message_bytes = 0;
}

bool StreamHub::EndIfComplete(Reader& reader) {
  const Head& head = heads_[reader.request.job_id()];
  const bool complete =
      reader.last ? reader.cursor >= *reader.last : head.ended && reader.cursor >= head.seq;
  if (!complete) return false;
  ReportDropped(reader);
  FlushMessage(reader);
  reader.sink->End(absl::OkStatus());
  readers_.erase(reader.id);
  return true;
}

}  // namespace tundish::jobs
