#include "server/jobs/progress.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/arrangement.h"
#include "server/jobs/hangs.h"
#include "server/jobs/losses.h"

namespace tundish::jobs {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// True for a member of the arrangement in force: others start, and have limits of their own.
bool TakesPart(const Member& member) {
  return member.phase == MemberPhase::kForming || member.phase == MemberPhase::kTraining ||
         member.phase == MemberPhase::kFinished;
}

/// `watched`: the members that the input's ranks are.
HangInput Look(Job& job, const Context& context, std::vector<Member*>& watched) {
  HangInput input{.now = context.now.steady,
                  .last_progress = job.last_progress,
                  .step_seconds = Median(job.recent_step_seconds),
                  .deadline = std::chrono::seconds(job.spec().recovery().step_deadline_seconds()),
                  .probe = job.probe,
                  .probe_sent = job.probe_sent};
  for (Member& member : job.members) {
    if (!TakesPart(member)) continue;
    watched.push_back(&member);
    RankProgress& rank = input.ranks.emplace_back(member.progress);
    rank.step = member.step;
    const Node* node = context.nodes.Find(member.node);
    // One that is being killed has been found out already.
    rank.heard = node != nullptr && node->ready() && member.kill_cause.empty();
    // What it told may be of the arrangement before.
    if (member.phase == MemberPhase::kForming && rank.phase != v1::PHASE_COPYING) {
      rank.phase = v1::PHASE_FORMING;
    }
  }
  input.first_step = std::ranges::none_of(job.members, [&job](const Member& member) {
    return member.step > job.arrangement.start_step();
  });
  return input;
}

void Ask(Job& job, Context& context) {
  job.probe = ++job.probes;
  job.probe_sent = context.now.steady;
  for (const Member& member : job.members) {
    if (!TakesPart(member)) continue;
    v1::CoordinatorMessage message;
    v1::RankOrder* order = message.mutable_order();
    order->set_worker_id(member.worker_id);
    order->set_job_id(job.id());
    order->set_job_epoch(job.record.job_epoch());
    order->mutable_probe()->set_number(job.probe);
    context.changes.Send(member.node, std::move(message));
  }
}

}  // namespace

void OnProgress(Job& job, Member& member, const v1::RankReport& report, const Context& context) {
  const v1::Progress& told = report.progress();
  member.progress.probe = std::max(member.progress.probe, told.probe());
  if (report.job_epoch() != job.record.job_epoch()) return;
  const bool changed = member.progress.phase != told.phase();
  member.progress.phase = told.phase();
  member.progress.counter = told.counter();
  // An answer tells nothing new: the change was told when it happened.
  if (changed && told.probe() == 0) MoveProgressLimit(job, context);
}

void CheckHang(Job& job, Context& context) {
  if (job.ended() || job.progress_limit == std::chrono::steady_clock::time_point::max()) return;
  std::vector<Member*> watched;
  const HangInput input = Look(job, context, watched);
  const HangDecision decision = DecideHang(input);
  if (decision.act == HangDecision::Act::kWait) return;
  if (decision.act == HangDecision::Act::kProbe) return Ask(job, context);
  const std::chrono::duration<double> still = input.now - input.last_progress;
  const std::string cause = still >= input.deadline ? "step_deadline" : "hung";
  const std::string detail = fmt::format("no rank made progress for {:.1f} s", still.count());
  spdlog::warn("event=hang job={} cause={} still_s={:.2f} victims={} probe={}", job.id(), cause,
               still.count(), decision.victims.size(), input.probe);
  bool killed = false;
  for (const size_t victim : decision.victims) {
    Member& member = *watched[victim];
    if (!member.kill_cause.empty()) continue;
    member.found_after_ms = still.count() * 1e3;
    KillMember(job, member, cause, context);
    killed = true;
  }
  if (killed) return MoveProgressLimit(job, context);
  OnDisturbance(job, job.members.front(), cause, detail, context);
}

}  // namespace tundish::jobs
