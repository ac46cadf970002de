#include "server/jobs/job.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include "runtime/base/check.h"

namespace tundish::jobs {

using google::protobuf::util::TimeUtil;

std::string_view MemberPhaseName(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kStarting:
      return "starting";
    case MemberPhase::kReady:
    case MemberPhase::kForming:
      return "ready";
    case MemberPhase::kTraining:
      return "training";
    case MemberPhase::kStopping:
    case MemberPhase::kStopped:
    case MemberPhase::kSaving:
      return "stopped";
    case MemberPhase::kFinished:
      return "finished";
    case MemberPhase::kVacant:
    case MemberPhase::kGone:
      return "lost";
  }
  return "lost";
}

Member* Job::FindMember(std::string_view worker_id) {
  if (worker_id.empty()) return nullptr;
  for (std::vector<Member>* group : {&members, &joiners}) {
    const auto found = std::ranges::find(*group, worker_id, &Member::worker_id);
    if (found != group->end()) return &*found;
  }
  return nullptr;
}

bool Job::IsJoiner(const Member& member) const {
  return std::ranges::any_of(joiners, [&](const Member& each) { return &each == &member; });
}

v1::JobProgress Job::DurableProgress() const {
  v1::JobProgress durable = progress;
  durable.set_job_id(id());
  durable.set_last_seq(record.last_seq());
  durable.clear_acked_reports();
  durable.clear_held_reports();
  for (const Member& member : members) {
    if (member.last_number > 0) {
      (*durable.mutable_acked_reports())[member.worker_id] = member.last_number;
    }
  }
  for (const auto& [step, reports] : steps) {
    for (const auto& [slot, report] : reports) *durable.add_held_reports() = report;
  }
  for (const auto& [folder, reports] : shards) {
    for (const auto& [tp, report] : reports) *durable.add_held_reports() = report;
  }
  for (const Member& member : members) {
    if (member.phase == MemberPhase::kFinished) durable.add_finished_workers(member.worker_id);
  }
  return durable;
}

v1::Job Job::Describe() const {
  v1::Job job = record;
  job.clear_ranks();
  if (!ended()) {
    for (const Member& member : members) {
      v1::RankStatus* rank = job.add_ranks();
      rank->set_dp(member.dp);
      rank->set_tp(member.tp);
      rank->set_node(member.node);
      for (const std::string& device : member.devices) rank->add_devices(device);
      rank->set_pid(member.pid);
      rank->set_phase(std::string(MemberPhaseName(member.phase)));
      rank->set_step(member.step);
    }
  }
  if (!ended()) job.set_data(static_cast<uint32_t>(data()));
  job.set_step(progress.step());
  job.set_data_epoch(progress.data_epoch());
  if (progress.has_latest()) *job.mutable_latest() = progress.latest();
  return job;
}

bool IsTerminal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

std::string StateWord(v1::JobState state) {
  std::string word = v1::JobState_Name(state);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

google::protobuf::Timestamp ToTimestamp(std::chrono::system_clock::time_point time) {
  return TimeUtil::MicrosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

std::chrono::system_clock::time_point FromTimestamp(const google::protobuf::Timestamp& time) {
  return std::chrono::system_clock::time_point(
      std::chrono::microseconds(TimeUtil::TimestampToMicroseconds(time)));
}

namespace {

v1::JobUpdate NextUpdate(Job& job, Now now) {
  job.record.set_last_seq(job.record.last_seq() + 1);
  v1::JobUpdate update;
  update.set_seq(job.record.last_seq());
  *update.mutable_time() = ToTimestamp(now.wall);
  return update;
}

}  // namespace

void Emit(Job& job, v1::JobEvent event, Now now, Changes& changes) {
  event.set_state(job.record.state());
  event.set_job_epoch(job.record.job_epoch());
  v1::JobUpdate update = NextUpdate(job, now);
  *update.mutable_event() = std::move(event);
  changes.Publish(job, std::move(update));
}

void EmitMetric(Job& job, v1::MetricPoint point, Now now, Changes& changes) {
  v1::JobUpdate update = NextUpdate(job, now);
  *update.mutable_metric() = std::move(point);
  changes.Publish(job, std::move(update));
}

void EmitLog(Job& job, v1::LogLine line, Now now, Changes& changes) {
  v1::JobUpdate update = NextUpdate(job, now);
  *update.mutable_log() = std::move(line);
  changes.Publish(job, std::move(update));
}

void SetState(Job& job, v1::JobState state, std::string reason, std::string message, Now now,
              Changes& changes) {
  TUNDISH_CHECK(!IsTerminal(job.record.state()));
  spdlog::info("event=job_state job={} from={} to={} reason={} job_epoch={}", job.id(),
               StateWord(job.record.state()), StateWord(state), reason, job.record.job_epoch());
  job.record.set_state(state);
  job.record.set_reason(reason);
  job.record.set_message(message);
  v1::JobEvent event;
  event.set_type("state_changed");
  event.set_reason(std::move(reason));
  event.set_message(std::move(message));
  changes.TouchJob(job);
  Emit(job, std::move(event), now, changes);
}

}  // namespace tundish::jobs
