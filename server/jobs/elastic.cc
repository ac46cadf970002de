#include "server/jobs/elastic.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/losses.h"
#include "server/jobs/parking.h"
#include "server/partitioner/partitioner.h"
#include "server/recovery/rows.h"

namespace tundish::jobs {
namespace {

// A process that fails to join is not tried again at once, and later each time.
constexpr std::chrono::seconds kFirstPause{10};
constexpr int kMostDoublings = 6;

bool IsVacant(const Member& member) {
  return member.phase == MemberPhase::kVacant;
}

bool IsSettled(const Member& member) {
  return IsVacant(member) ||
         ((member.phase == MemberPhase::kReady || member.phase == MemberPhase::kStopped) &&
          member.kill_cause.empty());
}

std::vector<partitioner::DeviceView> FreeDevices(const std::string& kind, const Context& context) {
  std::vector<partitioner::DeviceView> free;
  for (const scheduler::NodeView& node : context.nodes.View()) {
    if (!node.ready || node.drained) continue;
    for (const scheduler::NodeDevice& device : node.devices) {
      if (device.free && device.kind == kind) {
        free.push_back({node.node, device.name, device.link_domains});
      }
    }
  }
  return free;
}

void EmitSize(Job& job, const std::string& type, const std::string& reason, int before, int after,
              Context& context) {
  spdlog::info("event={} job={} from={} to={}", type, job.id(), before, after);
  v1::JobEvent event;
  event.set_type(type);
  event.set_reason(reason);
  event.set_message(
      fmt::format("{} replicas instead of {}, of {} asked for; the global batch stays", after,
                  before, job.spec().parallel().data()));
  Emit(job, std::move(event), context.now, context.changes);
}

}  // namespace

bool MaybeShrink(Job& job, Context& context) {
  const v1::RecoverySpec& policy = job.spec().recovery();
  if (!policy.shrink() || job.record.job_epoch() == 0) return false;
  if (std::ranges::none_of(job.members, IsVacant)) return false;
  if (!std::ranges::all_of(job.members, IsSettled)) return false;
  std::vector<recovery::Place> places;
  for (const Member& member : job.members) places.push_back({!IsVacant(member), member.stopped});
  const std::vector<int> rows = recovery::WholeRows(job.tensor(), places);
  const int before = job.data();
  const int after = static_cast<int>(rows.size()) / job.tensor();
  if (after < std::max<int>(1, static_cast<int>(policy.min_data()))) return false;

  std::vector<Member> members;
  std::vector<bool> stays(job.members.size(), false);
  for (const int slot : rows) {
    stays[slot] = true;
    Member& member = members.emplace_back(job.members[slot]);
    member.dp = static_cast<int>(members.size() - 1) / job.tensor();
  }
  for (size_t slot = 0; slot < stays.size(); ++slot) {
    const Member& member = job.members[slot];
    if (!stays[slot] && !IsVacant(member)) {
      context.changes.Send(member.node, ExitOrder(job, member));
    }
  }
  job.members = std::move(members);
  StoreArrangement(job, context);
  NoteReplacement(job, "shrink", context);
  EmitSize(job, "shrunk", "devices_missing", before, after, context);
  return true;
}

bool WantsToGrow(const Job& job, Now now) {
  return job.stage == Stage::kTraining && job.record.state() == v1::RUNNING &&
         !job.progress.has_parking() && job.joiners.empty() && !job.yield_asked &&
         job.data() < job.spec().parallel().data() && job.grow_after <= now.steady &&
         job.progress.step() + 1 < job.record.total_steps();
}

void MaybeGrow(Job& job, Context& context) {
  if (!WantsToGrow(job, context.now)) return;
  const std::vector<partitioner::DeviceView> free =
      FreeDevices(job.spec().parallel().device(), context);
  const int rows = std::min<int>(static_cast<int>(free.size()) / job.tensor(),
                                 job.spec().parallel().data() - job.data());
  if (rows == 0) return;
  const auto placement = partitioner::Partition(free, job.tensor(), rows);
  if (!placement.ok()) return;
  spdlog::info("event=growing job={} replicas={} more={}", job.id(), job.data(), rows);
  for (const partitioner::Place& place : placement->places) {
    Member& joiner = job.joiners.emplace_back();
    joiner.dp = job.data() + place.dp;
    joiner.tp = place.tp;
    joiner.node = place.node;
    joiner.devices = {place.device};
    StartMember(job, joiner, context);
  }
}

void OnJoinerReady(Job& job, Context& context) {
  const bool all_up = std::ranges::all_of(
      job.joiners, [](const Member& each) { return each.phase == MemberPhase::kReady; });
  if (all_up && job.stage == Stage::kTraining && !job.yield_asked) AskToYield(job, context);
}

void TakeInJoiners(Job& job, Context& context) {
  const bool all_up = std::ranges::all_of(
      job.joiners, [](const Member& each) { return each.phase == MemberPhase::kReady; });
  if (job.joiners.empty() || !all_up) return;
  const int before = job.data();
  for (Member& joiner : job.joiners) {
    joiner.dp = static_cast<int>(job.members.size()) / job.tensor();
    job.members.push_back(std::move(joiner));
  }
  job.joiners.clear();
  job.grow_failures = 0;
  StoreArrangement(job, context);
  EmitSize(job, "regrown", "devices_free", before, job.data(), context);
}

void DropJoiners(Job& job, bool failed, Context& context) {
  if (job.joiners.empty()) return;
  for (Member& joiner : job.joiners) {
    if (joiner.alive()) KillMember(job, joiner, "not_needed", context);
  }
  job.joiners.clear();
  if (!failed) return;
  const int doublings = std::min(job.grow_failures++, kMostDoublings);
  job.grow_after = context.now.steady + kFirstPause * (1 << doublings);
  spdlog::warn("event=growing_failed job={} attempts={}", job.id(), job.grow_failures);
}

void JoinersAsMembers(Job& job) {
  std::ranges::move(job.joiners, std::back_inserter(job.members));
  job.joiners.clear();
}

void CheckWait(Job& job, Context& context) {
  const auto missing = std::ranges::count_if(job.members, IsVacant);
  if (job.stage != Stage::kCollecting || missing == 0 || job.progress.has_parking()) {
    job.wait_limit = kNoLimit;
    return;
  }
  constexpr uint32_t kOfOldJobs = 60;  // stored before the field was there
  const uint32_t seconds = job.spec().recovery().wait_seconds();
  const std::chrono::seconds wait(seconds == 0 ? kOfOldJobs : seconds);
  if (job.wait_limit == kNoLimit) job.wait_limit = context.now.steady + wait;
  if (context.now.steady < job.wait_limit) return;
  job.wait_limit = kNoLimit;
  RequestYield(job, YieldReason::kDevicesMissing,
               fmt::format("{} of {} ranks had no device for {} s (recovery.wait_seconds)", missing,
                           job.members.size(), wait.count()),
               context);
}

}  // namespace tundish::jobs
