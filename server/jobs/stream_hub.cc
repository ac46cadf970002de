#include "server/jobs/stream_hub.h"

#include <algorithm>
#include <utility>

namespace tundish::jobs {
namespace {

constexpr int kReplayBatch = 512;
constexpr size_t kMessageBytes = 256 << 10;
constexpr size_t kMostReplaysPerGroup = 4;

}  // namespace

/// Gives one job's messages their job's name on the way to a reader of every job.
class StreamHub::GroupSink : public UpdateSink {
 public:
  GroupSink(std::string job_id, std::shared_ptr<AllUpdatesSink> sink)
      : job_id_(std::move(job_id)), sink_(std::move(sink)) {}

  void Send(v1::WatchJobResponse message) override {
    v1::WatchAllResponse all;
    v1::WatchedJob& job = *all.add_jobs();
    job.set_job_id(job_id_);
    job.mutable_updates()->Swap(message.mutable_updates());
    sink_->Send(std::move(all));
  }
  void End(const absl::Status& status) override {
    if (!status.ok()) sink_->End(status);  // else this job has ended, others go on
  }
  size_t queued_bytes() const override { return sink_->queued_bytes(); }

 private:
  const std::string job_id_;
  const std::shared_ptr<AllUpdatesSink> sink_;
};

StreamHub::StreamHub(ReadUpdates read, size_t bound_bytes)
    : read_(std::move(read)), bound_bytes_(bound_bytes) {}

StreamHub::~StreamHub() = default;

void StreamHub::SetHead(const std::string& job_id, const std::string& tenant, uint32_t seq,
                        bool ended) {
  const auto [entry, added] = heads_.try_emplace(job_id);
  Head& head = entry->second;
  head.tenant = tenant;
  head.seq = seq;
  head.ended = ended;
  if (!added) return;
  for (auto& [id, group] : groups_) {
    if (!group.request.tenant().empty() && group.request.tenant() != tenant) continue;
    const auto after = group.after.find(job_id);
    Join(id, group, job_id, after == group.after.end() ? 0 : after->second);
  }
}

void StreamHub::Forget(const std::string& job_id) {
  const auto head = heads_.find(job_id);
  if (head == heads_.end()) return;
  for (const ReaderId id : std::exchange(head->second.readers, {})) {
    readers_.at(id).sink->End(absl::NotFoundError("the job's record was removed by retention"));
    Erase(id);
  }
  heads_.erase(job_id);
}

void StreamHub::Publish(const std::string& job_id, const std::vector<v1::JobUpdate>& updates,
                        bool ended) {
  Head& head = heads_[job_id];
  if (!updates.empty()) head.seq = updates.back().seq();
  head.ended = head.ended || ended;
  for (auto next = head.readers.begin(); next != head.readers.end();) {
    Reader& reader = readers_.at(*next++);  // it may end below
    if (!reader.live) {                     // it reads them from the store
      Pump(reader);
      continue;
    }
    for (const v1::JobUpdate& update : updates) {
      if (reader.live && update.seq() > reader.cursor) Deliver(reader, update);
    }
    FlushMessage(reader);
    EndIfComplete(reader);
  }
}

StreamHub::Reader& StreamHub::NewReader(const std::string& job_id, uint32_t cursor,
                                        std::shared_ptr<UpdateSink> sink) {
  const ReaderId id = next_id_++;
  Reader& reader = readers_[id];
  reader.id = id;
  reader.job_id = job_id;
  reader.cursor = cursor;
  reader.sink = std::move(sink);
  heads_[job_id].readers.insert(id);
  return reader;
}

StreamHub::ReaderId StreamHub::Add(const v1::WatchJobRequest& request, int tensor,
                                   std::shared_ptr<UpdateSink> sink) {
  Reader& reader = NewReader(request.job_id(), request.after_seq(), std::move(sink));
  reader.filter = StreamFilter(request, tensor);
  if (request.replay_only()) reader.last = heads_[request.job_id()].seq;
  const ReaderId id = reader.id;
  Pump(reader);
  return id;
}

StreamHub::ReaderId StreamHub::AddAll(const v1::WatchAllRequest& request,
                                      std::shared_ptr<AllUpdatesSink> sink) {
  const ReaderId id = next_id_++;
  Group& group = groups_[id];
  group.request = request;
  group.request.clear_after();
  group.sink = std::move(sink);
  for (const v1::JobCursor& cursor : request.after()) group.after[cursor.job_id()] = cursor.seq();
  v1::WatchAllResponse first;
  std::vector<std::pair<std::string, uint32_t>> begin;
  for (const auto& [job_id, head] : heads_) {
    if (!request.tenant().empty() && request.tenant() != head.tenant) continue;
    const auto after = group.after.find(job_id);
    uint32_t cursor = after == group.after.end() ? 0 : after->second;
    if (after == group.after.end() && request.from_now()) {
      cursor = head.seq;
      v1::JobCursor& began = *first.add_began();
      began.set_job_id(job_id);
      began.set_seq(cursor);
    }
    if (!head.ended || cursor < head.seq) begin.emplace_back(job_id, cursor);
  }
  if (request.from_now()) group.sink->Send(std::move(first));
  for (const auto& [job_id, cursor] : begin) Join(id, group, job_id, cursor);
  return id;
}

void StreamHub::Join(ReaderId group_id, Group& group, const std::string& job_id, uint32_t cursor) {
  Reader& reader = NewReader(job_id, cursor, std::make_shared<GroupSink>(job_id, group.sink));
  reader.filter = StreamFilter(group.request);
  reader.group = group_id;
  group.members.insert(reader.id);
  if (cursor >= heads_[job_id].seq) {
    Pump(reader);  // nothing to replay
    return;
  }
  reader.parked = true;
  group.parked.push_back(reader.id);
  StartParked(group_id);
}

void StreamHub::StartParked(ReaderId group_id) {
  const auto found = groups_.find(group_id);
  if (found == groups_.end()) return;
  Group& group = found->second;
  while (!group.parked.empty() && group.replaying.size() < kMostReplaysPerGroup) {
    const auto next = readers_.find(group.parked.front());
    group.parked.pop_front();
    if (next == readers_.end()) continue;
    next->second.parked = false;
    group.replaying.insert(next->first);
    Pump(next->second);
  }
}

void StreamHub::Drained(ReaderId id) {
  if (const auto found = readers_.find(id); found != readers_.end()) {
    Pump(found->second);
    return;
  }
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  for (const ReaderId member : std::set<ReaderId>(group->second.replaying)) {
    if (const auto found = readers_.find(member); found != readers_.end()) Pump(found->second);
  }
}

void StreamHub::Remove(ReaderId id) {
  if (readers_.contains(id)) return Erase(id);
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  const std::set<ReaderId> members = std::move(group->second.members);
  groups_.erase(group);
  for (const ReaderId member : members) Erase(member);
}

void StreamHub::Erase(ReaderId id) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  const ReaderId group_id = found->second.group;
  if (const auto head = heads_.find(found->second.job_id); head != heads_.end()) {
    head->second.readers.erase(id);
  }
  readers_.erase(found);
  const auto group = groups_.find(group_id);
  if (group == groups_.end()) return;
  group->second.members.erase(id);
  if (group->second.replaying.erase(id) > 0) StartParked(group_id);
}

void StreamHub::EndAll(const absl::Status& status) {
  std::vector<std::shared_ptr<AllUpdatesSink>> all;
  for (auto& [id, group] : std::exchange(groups_, {})) all.push_back(group.sink);
  for (auto& [id, reader] : std::exchange(readers_, {})) {
    ReportDropped(reader);
    FlushMessage(reader);
    if (reader.group == 0) reader.sink->End(status);
  }
  for (auto& [job_id, head] : heads_) head.readers.clear();
  for (const auto& sink : all) sink->End(status);
}

void StreamHub::Pump(Reader& reader) {
  if (reader.live || reader.reading || reader.parked) return;
  if (reader.cursor >= heads_[reader.job_id].seq) {
    reader.live = true;
    const ReaderId id = reader.id;
    const ReaderId group_id = reader.group;
    if (EndIfComplete(reader)) return;
    const auto group = groups_.find(group_id);
    if (group != groups_.end() && group->second.replaying.erase(id) > 0) StartParked(group_id);
    return;
  }
  if (EndIfComplete(reader)) return;
  if (reader.sink->queued_bytes() >= bound_bytes_ / 2) return;  // Drained() comes back to it
  reader.reading = true;
  read_(reader.job_id, reader.cursor, kReplayBatch,
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
    Erase(id);
    return;
  }
  const uint32_t head = reader.last.value_or(heads_[reader.job_id].seq);
  const uint32_t before = reader.cursor;
  for (const v1::JobUpdate& update : *updates) {
    if (update.seq() > head) break;  // durable, but its turn to be published has not come
    Replay(reader, update);
  }
  if (reader.cursor == before) Drop(reader, before + 1, head, "retention");
  FlushMessage(reader);
  Pump(reader);
}

/// A stored range, or a hole nobody explains, is handed on as what it is.
void StreamHub::Replay(Reader& reader, const v1::JobUpdate& update) {
  const uint32_t first =
      update.has_dropped() ? std::max(update.dropped().first(), reader.cursor + 1) : update.seq();
  if (first > reader.cursor + 1) Drop(reader, reader.cursor + 1, first - 1, "retention");
  if (update.has_dropped()) {
    Drop(reader, first, update.dropped().last(), update.dropped().reason());
  } else {
    Deliver(reader, update);
  }
}

void StreamHub::Deliver(Reader& reader, const v1::JobUpdate& update) {
  const uint32_t seq = update.seq();
  if (reader.live && reader.sink->queued_bytes() + reader.message_bytes >= bound_bytes_) {
    if (!update.has_event()) return Drop(reader, seq, seq, "slow_reader");
    // An event is never dropped, and the bound holds: the reader gets it from the store once it has
    // taken what waits for it.
    reader.live = false;
    if (const auto group = groups_.find(reader.group); group != groups_.end()) {
      group->second.replaying.insert(reader.id);
    }
    return;
  }
  std::optional<v1::JobUpdate> shaped;
  if (!reader.filter.Pass(update, &shaped)) return Drop(reader, seq, seq, "filter");
  ReportDropped(reader);
  reader.cursor = seq;
  Append(reader, shaped ? *std::move(shaped) : update);
}

/// Neighbouring ranges of one reason become one; a reader hears of it before its next update.
void StreamHub::Drop(Reader& reader, uint32_t first, uint32_t last, const std::string& reason) {
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
  const Head& head = heads_[reader.job_id];
  const bool complete =
      reader.last ? reader.cursor >= *reader.last : head.ended && reader.cursor >= head.seq;
  if (!complete) return false;
  ReportDropped(reader);
  FlushMessage(reader);
  reader.sink->End(absl::OkStatus());
  Erase(reader.id);
  return true;
}

}  // namespace tundish::jobs
