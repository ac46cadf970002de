#include "server/jobs/core.h"

#include <algorithm>
#include <set>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/ulid.h"
#include "server/jobs/arrangement.h"
#include "server/jobs/deadlines.h"
#include "server/jobs/elastic.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/losses.h"
#include "server/jobs/parking.h"
#include "server/scheduler/decide_all.h"

namespace tundish::jobs {
namespace {

ReadUpdates ReadFrom(store::Store& store, boost::asio::any_io_executor loop) {
  return [&store, loop](const std::string& job_id, uint32_t after_seq, int limit, auto done) {
    store.ReadUpdatesAsync(job_id, after_seq, limit, [loop, done](store::Store::Updates updates) {
      boost::asio::post(
          loop, [done, updates = std::move(updates)]() mutable { done(std::move(updates)); });
    });
  };
}

scheduler::PendingJob ToPending(const Job& job) {
  return {.job_id = job.id(),
          .tenant = job.spec().tenant(),
          .priority = job.spec().priority(),
          .submitted = FromTimestamp(job.record.submitted()),
          .tensor = job.spec().parallel().tensor(),
          .data = job.spec().parallel().data(),
          .device_kind = job.spec().parallel().device()};
}

}  // namespace

Core::Core(Parts parts)
    : parts_(std::move(parts)),
      committer_(parts_.loop, parts_.store,
                 [this](std::chrono::duration<double> took) {
                   if (parts_.observer != nullptr) parts_.observer->OnCommit(took);
                 }),
      streams_(ReadFrom(parts_.store, parts_.loop), parts_.settings.reader_bound_bytes) {}

Core::~Core() = default;

Context Core::MakeContext(Changes& changes) {
  return {parts_.clock(), changes, nodes_, rendezvous_, parts_.settings};
}

void Core::Commit(Changes changes) {
  if (changes.empty()) return;
  changes.ForEachTouched([this](Job& job) { index_.Update(job); });
  changes.Seal();
  store::WriteBatch writes = std::move(changes.writes);
  auto leaving = std::make_shared<Changes>(std::move(changes));
  committer_.Commit(std::move(writes), [this, leaving](const absl::Status& status) {
    if (status.ok()) Leave(*leaving);
  });
}

/// What became durable leaves: updates to readers, orders and acknowledgements to agents.
void Core::Leave(const Changes& changes) {
  for (const auto& [job_id, updates] : changes.updates) {
    const v1::JobUpdate& last = updates.back();
    streams_.Publish(job_id, updates, last.has_event() && IsTerminal(last.event().state()));
    if (parts_.observer == nullptr) continue;
    const Job* job = FindExact(job_id);
    for (const v1::JobUpdate& update : updates) parts_.observer->OnUpdate(*job, update);
  }
  for (const Order& order : changes.orders) SendOrder(order);
  for (const auto& [to, number] : changes.acks) {
    v1::CoordinatorMessage message;
    message.mutable_ack()->set_worker_id(to.second);
    message.mutable_ack()->set_number(number);
    SendOrder({to.first, std::move(message)});
  }
  if (parts_.remove_folder) {
    for (const std::string& folder : changes.obsolete_folders) parts_.remove_folder(folder);
  }
  if (parts_.sweep_folder) {
    for (const Sweep& sweep : changes.sweeps) parts_.sweep_folder(sweep);
  }
}

/// An order for an agent that is away is dropped: its registration brings the ranks up to date.
void Core::SendOrder(const Order& order) {
  Node* node = nodes_.Find(order.node);
  if (node == nullptr || node->link == nullptr) return;
  if (order.message.has_start_worker()) {
    const v1::StartWorker& start = order.message.start_worker();
    Job* job = FindExact(start.job_id());
    Member* member = job == nullptr ? nullptr : job->FindMember(start.worker_id());
    if (member == nullptr || member->start_sent || job->ended()) return;
    member->start_sent = true;
  }
  if (!node->link->Send(order.message)) {
    spdlog::warn("event=agent_too_slow node={}", node->name);
    const std::shared_ptr<AgentLink> link = node->link;
    link->End(absl::ResourceExhaustedError("the agent reads its orders too slowly; connect again"));
    OnAgentGone(link.get());
  }
}

/// Inputs that come together share one run.
void Core::RequestSchedule() {
  if (closed_ || std::exchange(schedule_requested_, true)) return;
  if (parts_.clock().steady < next_schedule_) return;  // Tick comes back to it
  boost::asio::post(parts_.loop, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) RunSchedule();
  });
}

void Core::RunSchedule() {
  if (closed_ || !std::exchange(schedule_requested_, false)) return;
  const auto began = parts_.clock().steady;
  Change([this](Context& context) {
    Schedule(context);
    context.changes.schedule = false;  // what it did calls for no second run
  });
  const auto now = parts_.clock().steady;
  next_schedule_ = now + 9 * (now - began);
}

/// Gives every job that waits for its data check an agent that sees files, the least busy one
/// first.
void Core::StartChecks(Context& context) {
  constexpr size_t kMostPerNode = 8;
  if (index_.unchecked().empty()) return;
  std::set<std::pair<size_t, Node*>> by_load;
  for (auto& [name, node] : nodes_.nodes()) {
    // A check whose job was cancelled may never be answered.
    std::erase_if(node.checks, [&, &name = name](const std::string& id) {
      const Job* job = FindExact(id);
      return job == nullptr || job->ended() || job->check.node != name;
    });
    if (node.ready() && node.checks.size() < kMostPerNode) {
      by_load.emplace(node.checks.size(), &node);
    }
  }
  std::vector<Job*> started;
  for (const auto& [id, job] : index_.unchecked()) {
    if (by_load.empty()) break;
    Node& node = *by_load.extract(by_load.begin()).value().second;
    node.checks.insert(id);
    if (node.checks.size() < kMostPerNode) by_load.emplace(node.checks.size(), &node);
    job->check.task_id = NewUlid(context.now.wall);
    job->check.node = node.name;
    started.push_back(job);
    context.changes.Send(node.name, CheckOrder(*job));
  }
  for (Job* job : started) index_.Update(*job);
}

/// Free devices go to jobs that recover first, then to waiting ones.
void Core::Schedule(Context& context) {
  StartChecks(context);
  for (const auto& [id, job] : index_.recovering()) FillVacancies(*job, context);
  GrowJobs(context);
  scheduler::Input input{.now = context.now.wall};
  for (const auto& [id, job] : index_.pending()) input.pending.push_back(ToPending(*job));
  if (input.pending.empty()) return;
  input.nodes = nodes_.View();
  const scheduler::Verdict decision = scheduler::DecideAll(input);
  for (const scheduler::Start& start : decision.starts) {
    PlaceJob(*jobs_.at(start.job_id), start.placement, context);
  }
  for (const scheduler::Waiting& waiting : decision.waiting) {
    Job& job = *jobs_.at(waiting.job_id);
    if (job.wait_reason == waiting.reason) continue;  // known, and stored
    job.wait_reason = waiting.reason;
    job.record.set_reason(std::string(scheduler::WaitCodeName(waiting.code)));
    job.record.set_message(waiting.reason);
    context.changes.TouchJob(job);
  }
}

void Core::Tick() {
  if (closed_) return;
  Change([this](Context& context) {
    rendezvous_.ExpireWaits(context.now.steady);
    CheckNodes(context);
    const auto passed = context.now.steady - last_tick_.value_or(context.now.steady);
    last_tick_ = context.now.steady;
    // While the disk does not keep up, reports are refused and orders do not leave.
    const bool keeps_up = committer_.health().ok() &&
                          committer_.backlog_bytes() <= parts_.settings.backlog_bound_bytes;
    for (const auto& [id, job] : index_.placed()) {
      if (job->members.empty()) continue;
      if (keeps_up) AskForLeftReports(*job, context);
      if (keeps_up) CheckWait(*job, context);
      // Held back after a failure to grow, it looks again now.
      if (job->grow_failures > 0 && WantsToGrow(*job, context.now)) context.changes.schedule = true;
      if (job->members.empty()) continue;
      if (keeps_up && CanBeHeard(*job, context)) {
        CheckDeadlines(*job, context);
      } else {
        HoldLimits(*job, passed, context);
      }
    }
    if (context.now.steady >= next_second_) {
      next_second_ = context.now.steady + std::chrono::seconds(1);
      TickOncePerSecond(context);
    }
  });
  Retain(parts_.clock());
  FailReads([now = parts_.clock()](const PendingRead& read) { return read.limit < now.steady; },
            "gave no answer in time");
  if (schedule_requested_ && parts_.clock().steady >= next_schedule_) RunSchedule();
}

/// A job that lost replicas takes free devices before jobs that come after it, not before others.
void Core::GrowJobs(Context& context) {
  const auto precedes = [](const Job& a, const Job& b) {
    if (a.spec().priority() != b.spec().priority()) {
      return a.spec().priority() > b.spec().priority();
    }
    return FromTimestamp(a.record.submitted()) < FromTimestamp(b.record.submitted());
  };
  for (const auto& [id, job] : index_.placed()) {
    if (!WantsToGrow(*job, context.now)) continue;
    const bool behind = std::ranges::any_of(index_.pending(), [&](const auto& entry) {
      const Job& other = *entry.second;
      return other.spec().parallel().device() == job->spec().parallel().device() &&
             precedes(other, *job);
    });
    if (!behind) MaybeGrow(*job, context);
  }
}

/// Reports that were not taken while the disk did not keep up.
void Core::AskForLeftReports(Job& job, Context& context) {
  for (Member& member : job.members) {
    if (!std::exchange(member.reports_left, false)) continue;
    member.gap_high = 0;
    context.changes.Send(member.node, ResendOrder(job, member));
  }
}

void Core::CheckNodes(Context& context) {
  for (auto& [name, node] : nodes_.nodes()) {
    const auto silent = context.now.steady - node.last_heard;
    if (silent <= parts_.settings.unreachable_after) continue;
    if (!std::exchange(node.unreachable, true)) {
      spdlog::warn("event=node_unreachable node={} silent_ms={}", name,
                   std::chrono::duration_cast<std::chrono::milliseconds>(silent).count());
      context.changes.schedule = true;
    }
    if (silent <= parts_.settings.lost_after || context.now.steady < node.grace_until) continue;
    for (const std::string& id : std::exchange(node.checks, {})) {
      Job* job = FindExact(id);
      if (job == nullptr || job->ended() || job->check.node != name) continue;
      job->check = {};  // another agent gets it
      index_.Update(*job);
      context.changes.schedule = true;
    }
    if (node.occupied.empty()) continue;
    for (const auto& [id, job] : index_.placed()) {
      if (job->leaving()) {
        std::erase_if(job->members, [&](const Member& member) {
          if (member.node == name) nodes_.Free(name, member.worker_id);
          return member.node == name;
        });
        MaybePending(*job, context);
      } else if (MayGiveUp(*job, node, context.now)) {
        spdlog::warn("event=host_lost job={} node={}", id, name);
        OnHostLost(*job, name, context);
      }
    }
  }
}

/// A host is given up only when that helps: not while its ranks' peers advance (then only the agent
/// is gone), and not while the rest of the cluster could not take its ranks and nobody waits for
/// them.
bool Core::MayGiveUp(const Job& job, const Node& node, Now now) const {
  int ranks_there = 0;
  bool ranks_elsewhere = false;
  for (const Member& member : job.members) {
    if (member.node == node.name) {
      ranks_there += member.alive();
    } else {
      ranks_elsewhere = ranks_elsewhere || member.alive();
    }
  }
  if (ranks_there == 0) return false;
  if (ranks_elsewhere) {
    // A long step is not a stand-still.
    double longest = 0;
    for (const double seconds : job.recent_step_seconds) longest = std::max(longest, seconds);
    const double most = job.spec().recovery().step_deadline_seconds();
    const std::chrono::duration<double> limit = std::max<std::chrono::duration<double>>(
        parts_.settings.lost_after, std::chrono::duration<double>(std::min(3 * longest, most)));
    return now.steady - job.last_advance > limit;
  }
  int free = 0;
  for (const scheduler::NodeView& view : nodes_.View()) {
    if (!view.ready || view.drained) continue;
    free += static_cast<int>(std::ranges::count_if(view.devices, [&job](const auto& device) {
      return device.free && device.kind == job.spec().parallel().device();
    }));
  }
  return free >= ranks_there;
}

void Core::CallStore(const v1::StoreRequest& request, rendezvous::StoreTable::Done done) {
  if (closed_) {
    done(absl::UnavailableError("the coordinator is going down; try again"));
    return;
  }
  rendezvous_.Call(request, parts_.clock().steady,
                   [this, done = std::move(done)](absl::StatusOr<v1::StoreReply> reply) {
                     if (closed_) reply = absl::UnavailableError("the coordinator is going down");
                     done(std::move(reply));
                   });
}

void Core::Close() {
  if (std::exchange(closed_, true)) return;
  for (const auto& [id, job] : jobs_) rendezvous_.Close(id);  // ends the waits
  const absl::Status going_down =
      absl::UnavailableError("the coordinator is going down; try again");
  streams_.EndAll(going_down);
  FailReads([](const PendingRead&) { return true; }, "cannot be asked: the coordinator goes down");
  for (auto& [name, node] : nodes_.nodes()) {
    if (node.link != nullptr) std::exchange(node.link, nullptr)->End(going_down);
  }
  committer_.Close();
}

}  // namespace tundish::jobs
