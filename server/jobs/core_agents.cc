#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/utf8.h"
#include "server/jobs/arrangement.h"
#include "server/jobs/core.h"
#include "server/jobs/elastic.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/losses.h"
#include "server/jobs/parking.h"
#include "server/jobs/reports.h"
#include "server/jobs/version_skew.h"

// What agents tell the core.
namespace tundish::jobs {
namespace {

constexpr std::chrono::milliseconds kExitNewsLimit{500};
constexpr size_t kTailForPeople = 400;

std::string ExitCause(const v1::WorkerExited& exited) {
  if (exited.signal() != 0) return fmt::format("killed_by_signal_{}", exited.signal());
  if (exited.adopted() && exited.exit_code() == 0) return "gone";  // nobody could wait for it
  return fmt::format("exited_{}", exited.exit_code());
}

/// The end of a log, on one line.
std::string Tail(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text = Utf8Suffix(text, kTailForPeople);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

void Core::OnAgentMessage(const std::shared_ptr<AgentLink>& link, const v1::AgentMessage& message) {
  if (closed_) return;
  if (message.has_register_()) {
    OnRegister(link, message);
    return;
  }
  const auto known = links_.find(link.get());
  Node* node = known == links_.end() ? nullptr : nodes_.Find(known->second);
  if (node == nullptr || message.node() != node->name) {
    link->End(
        absl::InvalidArgumentError("the first message of a stream must be Register, and every "
                                   "message must name the same node"));
    return;
  }
  if (node->link != link || node->incarnation != message.incarnation()) {
    link->End(absl::AbortedError(
        fmt::format("node '{}' is incarnation {} now", node->name, node->incarnation)));
    return;
  }
  const Now now = parts_.clock();
  node->last_heard = now.steady;
  node->last_heard_wall = now.wall;
  Change([&](Context& context) {
    if (std::exchange(node->unreachable, false)) context.changes.schedule = true;
    switch (message.body_case()) {
      case v1::AgentMessage::kWorkerExited:
        return OnWorkerExited(*node, message.worker_exited(), context);
      case v1::AgentMessage::kReports:
        return OnReports(*node, message.reports(), context);
      case v1::AgentMessage::kTaskResult:
        if (node->checks.erase(message.task_result().job_id()) > 0 && !index_.unchecked().empty()) {
          context.changes.schedule = true;  // it has room for another
        }
        if (Job* job = FindExact(message.task_result().job_id())) {
          OnDataChecked(*job, message.task_result(), context);
        }
        return;
      case v1::AgentMessage::kFileChunk:
        return OnFileChunk(message.file_chunk());
      case v1::AgentMessage::kLinkReport:
        return OnLinkReport(*node, message.link_report(), context);
      case v1::AgentMessage::kStartFailed:
        return OnStartFailed(*node, message.start_failed(), context);
      default:
        return;  // a heartbeat
    }
  });
}

void Core::OnAgentGone(const AgentLink* link) {
  const auto known = links_.find(link);
  if (known == links_.end()) return;
  Node* node = nodes_.Find(known->second);
  links_.erase(known);
  if (node == nullptr || node->link.get() != link) return;  // a newer stream took over
  node->link = nullptr;
  if (closed_) return;
  spdlog::warn("event=agent_disconnected node={}", node->name);
  FailReads([node](const PendingRead& read) { return read.node == node->name; }, "is away");
  // A data check goes on meanwhile: its agent tells of it when it is back.
  Change([](Context& context) { context.changes.schedule = true; });
}

void Core::OnRegister(const std::shared_ptr<AgentLink>& link, const v1::AgentMessage& message) {
  absl::Status valid = CheckVersionSkew(TUNDISH_VERSION, message.register_().version());
  if (valid.ok()) valid = NodeTable::CheckRegistration(message);
  if (!valid.ok()) {
    spdlog::warn("event=agent_refused node={:.64} reason=\"{}\"", message.node(),
                 std::string(valid.message()));
    link->End(valid);
    return;
  }
  if (const Node* before = nodes_.Find(message.node());
      before != nullptr && before->link != nullptr && before->link != link) {
    const std::shared_ptr<AgentLink> old = before->link;
    OnAgentGone(old.get());
    old->End(absl::AbortedError(fmt::format("node '{}' has connected again", message.node())));
  }
  v1::CoordinatorMessage reply;
  reply.mutable_register_reply()->set_version(TUNDISH_VERSION);
  reply.mutable_register_reply()->set_heartbeat_interval_ms(
      static_cast<uint32_t>(parts_.settings.heartbeat_interval.count()));
  reply.mutable_register_reply()->set_lease_ms(
      static_cast<uint32_t>(parts_.settings.unreachable_after.count()));
  link->Send(std::move(reply));

  links_[link.get()] = message.node();
  Node* known = nodes_.Find(message.node());
  const bool same_process = known != nullptr && known->incarnation == message.incarnation();
  Change([&](Context& context) {
    std::set<std::string> checks;
    if (known != nullptr) checks = std::exchange(known->checks, {});
    std::erase_if(checks, [&](const std::string& id) {
      Job* job = FindExact(id);
      if (job == nullptr || job->ended() || job->check.node != message.node()) return true;
      if (same_process) {
        // It may never have heard of the check, or told of its end in vain; else it knows the id.
        context.changes.Send(message.node(), CheckOrder(*job));
        return false;
      }
      job->check = {};  // ended with its agent
      index_.Update(*job);
      return true;
    });
    Node& node = nodes_.Register(message, link, context.now);
    node.checks = std::move(checks);
    spdlog::info("event=agent_registered node={} incarnation={} devices={} workers={}", node.name,
                 node.incarnation, node.registration.devices_size(),
                 message.register_().workers_size());
    context.changes.writes.PutNode(NodeTable::Record(node));
    context.changes.schedule = true;
    ReconcileNode(node, message.register_(), context);
    StartLinkCheck(node, context);
  });
}

void Core::OnWorkerExited(Node& node, const v1::WorkerExited& exited, Context& context) {
  const Loss loss{.cause = ExitCause(exited),
                  .detect_ms = exited.observed_ms(),
                  .detail = Tail(exited.log_tail())};
  ReleaseMember(node, exited.job_id(), exited.worker_id(), loss, context);
}

void Core::OnStartFailed(Node& node, const v1::StartFailed& failed, Context& context) {
  const Loss loss{.cause = "start_failed", .detail = Tail(failed.error())};
  ReleaseMember(node, failed.job_id(), failed.worker_id(), loss, context);
}

/// The process is gone: its devices are free, and its job goes on without it.
void Core::ReleaseMember(Node& node, const std::string& job_id, const std::string& worker_id,
                         const Loss& loss, Context& context) {
  if (nodes_.Free(node.name, worker_id)) context.changes.schedule = true;
  Job* job = FindExact(job_id);
  Member* member = job == nullptr ? nullptr : job->FindMember(worker_id);
  if (member == nullptr || member->node != node.name) return;
  if (job->leaving()) {
    OnLeavingMemberGone(*job, *member, context);
  } else {
    OnMemberGone(*job, *member, loss, context);
  }
}

void Core::OnReports(Node& node, const v1::WorkerReports& reports, Context& context) {
  // Left now and asked for again later: that bounds what waits for a slow disk.
  const bool leave = committer_.backlog_bytes() > parts_.settings.backlog_bound_bytes;
  for (const v1::RankReport& report : reports.reports()) {
    Job* job = FindExact(report.job_id());
    Member* member = job == nullptr ? nullptr : job->FindMember(report.worker_id());
    if (member == nullptr || member->node != node.name) {
      OrderKill(node.name, report.worker_id(), report.job_id(), context);
      continue;
    }
    if (leave) {
      member->reports_left = true;
    } else {
      OnReport(*job, *member, report, context);
    }
  }
}

void Core::OrderKill(const std::string& node, const std::string& worker_id,
                     const std::string& job_id, Context& context) {
  spdlog::warn("event=kill_unknown_worker node={} worker={} job={}", node, worker_id, job_id);
  v1::CoordinatorMessage message;
  message.mutable_kill_worker()->set_worker_id(worker_id);
  message.mutable_kill_worker()->set_job_id(job_id);
  context.changes.Send(node, std::move(message));
}

/// Brings what the agent runs and what the jobs know together: known processes are adopted, unknown
/// ones killed, missing ones are lost.
void Core::ReconcileNode(Node& node, const v1::Register& registration, Context& context) {
  std::set<std::string> reported;
  node.occupied.clear();
  for (const v1::LiveWorker& worker : registration.workers()) {
    reported.insert(worker.worker_id());
    nodes_.Occupy(node.name, {worker.devices().begin(), worker.devices().end()},
                  {worker.job_id(), worker.worker_id()});
    Job* job = FindExact(worker.job_id());
    Member* member = job == nullptr ? nullptr : job->FindMember(worker.worker_id());
    if (member == nullptr || member->node != node.name) {
      OrderKill(node.name, worker.worker_id(), worker.job_id(), context);
    } else {
      Adopt(*job, *member, worker, context);
    }
  }
  for (const auto& [id, job] : index_.placed()) {
    const bool joiner_gone = std::ranges::any_of(job->joiners, [&](const Member& joiner) {
      return joiner.node == node.name && !reported.contains(joiner.worker_id);
    });
    if (joiner_gone) DropJoiners(*job, true, context);
    // By id: a loss may put another process into the slot.
    std::vector<std::string> expected;
    for (const Member& member : job->members) {
      if (member.node != node.name || !member.alive()) continue;
      nodes_.Occupy(node.name, member.devices, {id, member.worker_id});
      if (!reported.contains(member.worker_id)) expected.push_back(member.worker_id);
    }
    for (const std::string& worker_id : expected) {
      Member* member = job->FindMember(worker_id);
      if (member == nullptr) continue;
      if (job->leaving()) {
        ReleaseMember(node, id, worker_id, {}, context);
      } else if (!member->start_sent) {
        member->limit = context.now.steady + parts_.settings.start_limit;
        context.changes.Send(node.name, StartWorkerOrder(*job, *member));
      } else {
        // The agent says how it ended right after it has registered, if it knows.
        member->missing = true;
        member->limit = context.now.steady + kExitNewsLimit;
      }
    }
  }
}

/// Orders may have been lost while the agent was away: says again what the process has to do.
void Core::Adopt(Job& job, Member& member, const v1::LiveWorker& worker, Context& context) {
  member.start_sent = true;
  member.pid = worker.pid();
  member.gap_high = 0;
  if (job.record.state() == v1::SUCCEEDED ||
      (job.stage == Stage::kReleasing && member.kill_cause.empty())) {
    member.limit = context.now.steady + parts_.settings.exit_limit;
    context.changes.Send(member.node, ExitOrder(job, member));
    return;
  }
  if (job.ended() || !member.kill_cause.empty()) {
    KillMember(job, member, "job_ended", context);
    return;
  }
  context.changes.Send(member.node, ResendOrder(job, member));
  if (member.phase == MemberPhase::kForming) {
    context.changes.Send(member.node, AssignOrder(job, member, context));
  } else if (member.phase == MemberPhase::kStopping) {
    StopMember(job, member, context);
  } else if (member.phase == MemberPhase::kStarting) {
    member.limit = context.now.steady + parts_.settings.start_limit;
  }
  RepeatParkingOrder(job, member, context);
}

}  // namespace tundish::jobs
