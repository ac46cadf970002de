#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/timestamp.pb.h>

#include "server/jobs/changes.h"
#include "server/jobs/hangs.h"
#include "server/jobs/settings.h"
#include "server/recovery/cut.h"
#include "tundish/v1/job.pb.h"
#include "tundish/v1/state.pb.h"

namespace tundish::jobs {

/// A limit that never passes.
inline constexpr auto kNoLimit = std::chrono::steady_clock::time_point::max();

/// Where a member stands, as the coordinator knows it.
enum class MemberPhase {
  /// No process: its host is lost and no other device is free.
  kVacant,
  /// Ordered; not Ready yet.
  kStarting,
  /// Up, never assigned.
  kReady,
  /// Has its assignment; not Formed yet.
  kForming,
  kTraining,
  /// Told to stop; silent so far.
  kStopping,
  kStopped,
  /// Stopped, and writing its state to disk.
  kSaving,
  kFinished,
  /// The process is gone, or the job has ended.
  kGone,
};

std::string_view MemberPhaseName(MemberPhase phase);

/// One slot of the mesh and the process that holds it.
struct Member {
  int dp = 0;
  int tp = 0;
  std::string worker_id;
  std::string secret;
  std::string node;
  std::vector<std::string> devices;
  uint32_t pid = 0;
  /// As reported by Ready; empty if that was before a restart of the coordinator.
  std::string cpu_capability;
  MemberPhase phase = MemberPhase::kVacant;
  /// Steps committed.
  uint32_t step = 0;
  /// job_epoch of the last assignment ordered; 0 before the first.
  uint32_t assigned_epoch = 0;
  /// The answer to the Stop in force.
  std::optional<v1::Stopped> stopped;
  /// Before it StartWorker is held back.
  std::chrono::steady_clock::time_point start_after;
  /// StartWorker has left for the agent, or the agent knows the process.
  bool start_sent = false;
  /// Highest report number handled.
  uint64_t last_number = 0;
  /// Latest number seen beyond a gap; 0: no gap. See OnReport.
  uint64_t gap_high = 0;
  /// Reports were left because the disk did not keep up; they have to be asked for.
  bool reports_left = false;
  /// When the limit of what is awaited from it ends; max: nothing is awaited.
  std::chrono::steady_clock::time_point limit = std::chrono::steady_clock::time_point::max();
  /// Its agent came back without it; word of its exit may follow until `limit`.
  bool missing = false;
  /// kSaving: what it was told to come to and write.
  v1::StartPoint save_start;
  /// Its answer to the last Save was that it could not.
  bool save_failed = false;
  /// Set once a kill was ordered: why, in an incident's words ("step_deadline").
  std::string kill_cause;
  /// How far it said it is, beyond `step`.
  RankProgress progress;
  /// It hung: milliseconds from its job's last progress until that was found.
  double found_after_ms = 0;

  bool alive() const { return phase != MemberPhase::kVacant && phase != MemberPhase::kGone; }
};

/// What the ranks of the job are doing together.
enum class Stage {
  /// No ranks.
  kIdle,
  /// An arrangement is in preparation: processes start or stop.
  kCollecting,
  /// Assigned; not every member has Formed.
  kForming,
  kTraining,
  /// State is kept in a checkpoint; processes leave, and then the job is PENDING.
  kReleasing,
  kEnded,
};

/// StepDone reports of one step, by slot.
using StepReports = std::map<int, v1::RankReport>;

/// The data check before placement.
struct DataCheck {
  bool done = false;
  /// Both empty when no agent has it.
  std::string task_id;
  std::string node;
};

/// One job: what is stored (record, progress, arrangement) and what follows from it.
struct Job {
  v1::Job record;
  v1::JobProgress progress;
  /// The newest; `starts` is empty while it is in preparation.
  v1::Arrangement arrangement;
  std::vector<v1::CheckpointRecord> checkpoints;

  Stage stage = Stage::kIdle;
  DataCheck check;
  std::vector<Member> members;
  /// Processes for more replicas: not in the arrangement yet.
  std::vector<Member> joiners;
  /// When more replicas are tried again, and how often that failed in a row.
  std::chrono::steady_clock::time_point grow_after;
  int grow_failures = 0;
  /// Why it waits for devices, in the scheduler's words.
  std::string wait_reason;
  /// When a kill of hung ranks is due; moved by every sign of progress.
  std::chrono::steady_clock::time_point progress_limit =
      std::chrono::steady_clock::time_point::max();
  /// Its ranks have been asked to stop after a step they agree on.
  bool yield_asked = false;
  /// PENDING, and not to be placed; as progress.held.
  bool held = false;
  /// RECOVERING without enough devices: when it gives those it has back.
  std::chrono::steady_clock::time_point wait_limit = std::chrono::steady_clock::time_point::max();
  /// Last sign of progress; the last Probe since then (0: none) and when; how many there were.
  std::chrono::steady_clock::time_point last_progress;
  uint32_t probe = 0;
  std::chrono::steady_clock::time_point probe_sent;
  uint32_t probes = 0;
  /// Last StepDone heard.
  std::chrono::steady_clock::time_point last_advance;

  /// Next metric point to publish, and the reports of it and later ones.
  uint32_t next_point = 0;
  std::map<uint32_t, StepReports> steps;
  /// Points below it are covered by a cut.
  uint32_t covered = 0;
  /// job_epoch → first step that did not survive it.
  std::map<uint32_t, uint32_t> cuts;
  /// Checkpoint folder → shards reported so far, by tp.
  std::map<std::string, StepReports> shards;
  /// Step times of the last points, for the ETA.
  std::vector<double> recent_step_seconds;
  std::optional<recovery::KnownSums> known_sums;

  /// The incident being recovered from: an entry of record.incidents; none: -1.
  int open_incident = -1;
  std::chrono::steady_clock::time_point incident_began;
  /// What is known of its first failure, for people.
  std::string incident_detail;
  /// Processes that ended before they were in an arrangement, since the last one formed.
  int start_failures = 0;
  /// Slowest rank's times since the cut, as reported by Formed.
  double form_seconds = 0;
  double restore_seconds = 0;
  /// job_epoch of the arrangement whose break was counted last; 0: none. See CountFailure.
  uint32_t counted_epoch = 0;

  const std::string& id() const { return record.job_id(); }
  const v1::JobSpec& spec() const { return record.spec(); }
  int tensor() const { return spec().parallel().tensor(); }
  bool ended() const { return stage == Stage::kEnded; }
  /// Its processes are to leave, and their ends disturb nobody.
  bool leaving() const { return ended() || stage == Stage::kReleasing; }
  /// Replicas of the arrangement: fewer than the spec's after a shrink.
  int data() const { return static_cast<int>(members.size()) / tensor(); }
  /// Among the members and those that are to join; null if unknown.
  Member* FindMember(std::string_view worker_id);
  bool IsJoiner(const Member& member) const;
  int SlotOf(const Member& member) const { return member.dp * tensor() + member.tp; }
  /// `progress` as it has to be stored: with the reports that only memory holds.
  v1::JobProgress DurableProgress() const;
  /// As `describe` shows it.
  v1::Job Describe() const;
};

bool IsTerminal(v1::JobState state);
/// "RUNNING" → "running".
std::string StateWord(v1::JobState state);

google::protobuf::Timestamp ToTimestamp(std::chrono::system_clock::time_point time);
std::chrono::system_clock::time_point FromTimestamp(const google::protobuf::Timestamp& time);

/// Completes `event` with the job's state and job_epoch and publishes it with the next seq.
void Emit(Job& job, v1::JobEvent event, Now now, Changes& changes);
void EmitMetric(Job& job, v1::MetricPoint point, Now now, Changes& changes);
void EmitLog(Job& job, v1::LogLine line, Now now, Changes& changes);

/// Moves the job, which must not have ended, to `state` and publishes "state_changed".
void SetState(Job& job, v1::JobState state, std::string reason, std::string message, Now now,
              Changes& changes);

}  // namespace tundish::jobs
