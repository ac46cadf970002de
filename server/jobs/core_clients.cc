#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/jobs/core.h"
#include "server/jobs/lifecycle.h"
#include "server/jobs/waiting.h"
#include "server/planner/planner.h"
#include "server/spec/resolve.h"

// What clients ask of the core.
namespace tundish::jobs {
namespace {

absl::Status CheckRequestId(const std::string& request_id) {
  constexpr size_t kLongest = 128;
  const bool printable =
      std::ranges::all_of(request_id, [](unsigned char c) { return std::isprint(c) != 0; });
  if (!request_id.empty() && request_id.size() <= kLongest && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("request_id must be 1 to {} printable characters, not {} bytes", kLongest,
                  request_id.size()));
}

planner::DevicePool PoolOf(const std::vector<scheduler::NodeView>& views,
                           const v1::ListNodesResponse& nodes, const std::string& kind) {
  planner::DevicePool pool{.kind = kind};
  for (size_t i = 0; i < views.size(); ++i) {
    if (!views[i].ready || views[i].drained) continue;
    int here = 0;
    for (const v1::DeviceStatus& status : nodes.nodes(static_cast<int>(i)).devices()) {
      if (status.device().kind() != kind) continue;
      ++here;
      const uint64_t memory = status.device().memory_bytes();
      if (memory > 0)
        pool.memory_bytes = pool.memory_bytes == 0 ? memory : std::min(pool.memory_bytes, memory);
    }
    pool.count += here;
    pool.largest_host = std::max(pool.largest_host, here);
  }
  return pool;
}

std::string Places(const Job& job) {
  std::string text;
  for (const Member& member : job.members) {
    text += fmt::format("{}dp={} tp={} on {} {}", text.empty() ? "" : "; ", member.dp, member.tp,
                        member.node.empty() ? "(no device yet)" : member.node,
                        fmt::join(member.devices, ","));
  }
  return text;
}

}  // namespace

absl::Status Core::CheckAccepting() const {
  if (closed_) return absl::UnavailableError("the coordinator is going down; try again");
  if (!committer_.health().ok()) {
    return absl::UnavailableError(
        fmt::format("the coordinator cannot write its state ({}); try again",
                    std::string(committer_.health().message())));
  }
  return absl::OkStatus();
}

/// Only what no waiting can cure is refused. Before the first agent nothing is known.
absl::Status Core::CheckFitsCluster(const v1::JobSpec& spec) const {
  const v1::ListNodesResponse nodes = nodes_.Describe();
  if (nodes.nodes().empty()) return absl::OkStatus();
  const std::string& kind = spec.parallel().device();
  const int needed = spec.parallel().tensor() * spec.parallel().data();
  int offered = 0;
  uint64_t memory = 0;
  for (const v1::NodeStatus& node : nodes.nodes()) {
    for (const v1::DeviceStatus& status : node.devices()) {
      if (status.device().kind() != kind) continue;
      ++offered;
      memory = std::max<uint64_t>(memory, status.device().memory_bytes());
    }
  }
  if (offered < needed) {
    return absl::FailedPreconditionError(
        fmt::format("parallel.tensor={} x parallel.data={} needs {} {} devices, the cluster has "
                    "{}: use smaller "
                    "degrees or add hosts",
                    spec.parallel().tensor(), spec.parallel().data(), needed, kind, offered));
  }
  return planner::CheckFits(spec, memory);
}

absl::StatusOr<v1::SubmitJobResponse> Core::Submit(const std::string& request_id,
                                                   const v1::JobSpec& resolved) {
  if (absl::Status accepting = CheckAccepting(); !accepting.ok()) return accepting;
  if (absl::Status valid = CheckRequestId(request_id); !valid.ok()) return valid;
  v1::SubmitJobResponse response;
  const std::pair<std::string, std::string> key(resolved.tenant(), request_id);
  if (const auto known = requests_.find(key); known != requests_.end()) {
    const Job* job = FindExact(known->second.job_id);
    const std::string difference = job != nullptr ? spec::SpecDifference(job->spec(), resolved)
                                   : known->second.spec_hash != spec::SpecHash(resolved)
                                       ? "its record is gone"
                                       : "";
    if (!difference.empty()) {
      return absl::AlreadyExistsError(
          fmt::format("request_id '{}' already made job {} from another spec: {}; use a new "
                      "request_id for another job",
                      request_id, known->second.job_id, difference));
    }
    response.set_job_id(known->second.job_id);
    response.set_existing(true);
    return response;
  }
  if (!room_.ok()) return room_;
  if (absl::Status fits = CheckFitsCluster(resolved); !fits.ok()) return fits;

  Change([&](Context& context) {
    std::unique_ptr<Job> job = NewJob(request_id, resolved, context);
    response.set_job_id(job->id());
    v1::RequestRecord request;
    request.set_tenant(resolved.tenant());
    request.set_request_id(request_id);
    request.set_job_id(job->id());
    request.set_spec_hash(spec::SpecHash(resolved));
    *request.mutable_time() = ToTimestamp(context.now.wall);
    context.changes.writes.AddRequest(request);
    Audit("submit_job", job->id(), "OK", context.changes);
    context.changes.schedule = true;
    requests_[key] = {job->id(), request.spec_hash()};
    streams_.SetHead(job->id(), resolved.tenant(), 0, false);
    spdlog::info("event=job_submitted job={} name={} tenant={}", job->id(), resolved.name(),
                 resolved.tenant());
    jobs_[job->id()] = std::move(job);
  });
  return response;
}

absl::StatusOr<Job*> Core::Find(std::string_view job_id) const {
  constexpr size_t kShortestPrefix = 6;
  constexpr size_t kUlid = 26;
  if (job_id.size() < kShortestPrefix || job_id.size() > kUlid) {
    return absl::InvalidArgumentError(
        fmt::format("job id '{:.64}' must be a whole id or a prefix of at least {} characters",
                    job_id, kShortestPrefix));
  }
  const auto first = jobs_.lower_bound(std::string(job_id));
  if (first == jobs_.end() || !first->first.starts_with(job_id)) {
    return absl::NotFoundError(fmt::format("no job '{}'; see `tundish list`", job_id));
  }
  const auto second = std::next(first);
  if (second != jobs_.end() && second->first.starts_with(job_id)) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' fits several jobs, e.g. {} and {}; give more characters", job_id,
                    first->first, second->first));
  }
  return first->second.get();
}

Job* Core::FindExact(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

absl::StatusOr<v1::Job> Core::GetJob(std::string_view job_id) const {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  return (*job)->Describe();
}

absl::StatusOr<v1::ListJobsResponse> Core::ListJobs(const v1::ListJobsRequest& request) const {
  constexpr uint32_t kMost = 1000;
  if (request.limit() > kMost) {
    return absl::InvalidArgumentError(
        fmt::format("limit is {}; the most is {}", request.limit(), kMost));
  }
  const int limit = request.limit() == 0 ? 100 : static_cast<int>(request.limit());
  v1::ListJobsResponse response;
  for (auto entry = jobs_.rbegin(); entry != jobs_.rend() && response.jobs_size() < limit;
       ++entry) {
    const Job& job = *entry->second;
    const auto& states = request.states();
    if (!states.empty() && std::ranges::find(states, job.record.state()) == states.end()) continue;
    if (!request.tenant().empty() && request.tenant() != job.spec().tenant()) continue;
    v1::Job* listed = response.add_jobs();
    *listed = job.Describe();
    listed->clear_ranks();
    listed->clear_data_report();
    // The name is what people know a job by; the rest of the spec is for `describe`.
    v1::JobSpec brief;
    brief.set_name(job.spec().name());
    brief.set_tenant(job.spec().tenant());
    *listed->mutable_spec() = std::move(brief);
  }
  return response;
}

absl::StatusOr<v1::CancelJobResponse> Core::CancelJob(const v1::CancelJobRequest& request) {
  if (absl::Status accepting = CheckAccepting(); !accepting.ok()) return accepting;
  const absl::StatusOr<Job*> job = Find(request.job_id());
  if (!job.ok()) return job.status();
  if (!(*job)->ended()) {
    Change([&](Context& context) {
      Audit("cancel_job", (*job)->id(), "OK", context.changes);
      EndJob(**job, v1::CANCELLED, "cancelled_by_client",
             request.reason().empty() ? "cancelled by a client"
                                      : fmt::format("cancelled: {:.512}", request.reason()),
             context);
    });
  }
  v1::CancelJobResponse response;
  response.set_state((*job)->record.state());
  return response;
}

absl::Status Core::YieldJob(std::string_view job_id, YieldReason reason,
                            const std::string& message) {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  bool asked = false;
  Change([&](Context& context) { asked = RequestYield(**job, reason, message, context); });
  if (asked || (*job)->held) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("job {} is {} and has no devices to give back",
                                                   (*job)->id(),
                                                   v1::JobState_Name((*job)->record.state())));
}

absl::Status Core::LetJobGoOn(std::string_view job_id) {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  Change([&](Context& context) { LetGoOn(**job, context); });
  return absl::OkStatus();
}

absl::StatusOr<v1::ExplainJobResponse> Core::ExplainJob(std::string_view job_id) const {
  const absl::StatusOr<Job*> found = Find(job_id);
  if (!found.ok()) return found.status();
  const Job& job = **found;
  v1::ExplainJobResponse response;
  response.set_state(job.record.state());
  const std::string head = fmt::format("Job {} ({}) is {}", job.spec().name(), job.id(),
                                       v1::JobState_Name(job.record.state()));
  if (job.ended()) {
    response.set_text(fmt::format("{}: {} ({}).", head, job.record.message(), job.record.reason()));
  } else if (job.members.empty() && !job.check.done) {
    response.set_text(
        job.check.node.empty()
            ? fmt::format("{}: it waits for an agent that can check its data; no agent "
                          "is connected.",
                          head)
            : fmt::format("{}: agent {} is checking its data.", head, job.check.node));
  } else if (job.members.empty()) {
    response.set_text(fmt::format("{}: {}.", head, job.wait_reason));
  } else {
    response.set_text(
        fmt::format("{} at step {} of {}, job_epoch {}. Places: {}. Why there: {}. {}", head,
                    job.progress.step(), job.record.total_steps(), job.record.job_epoch(),
                    Places(job), job.arrangement.reason(), job.record.message()));
    const std::string waits = WhatItWaitsFor(job, nodes_.View(), parts_.clock());
    if (!waits.empty()) response.set_text(fmt::format("{} It waits: {}.", response.text(), waits));
  }
  return response;
}

absl::StatusOr<v1::ListCheckpointsResponse> Core::ListCheckpoints(std::string_view job_id) const {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  v1::ListCheckpointsResponse response;
  for (const auto& checkpoint : (*job)->checkpoints) {
    *response.add_checkpoints() = checkpoint.artifact();
  }
  return response;
}

v1::PlanJobResponse Core::PlanJob(const v1::JobSpec& resolved) const {
  v1::PlanJobResponse response;
  const auto pool = PoolOf(nodes_.View(), nodes_.Describe(), resolved.parallel().device());
  for (v1::PlanOption& option : planner::Plan(resolved, pool)) {
    *response.add_options() = std::move(option);
  }
  return response;
}

absl::Status Core::CheckArtifact(std::string_view job_id, const std::string& path) const {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  // ".." would lead from this job's checkpoint into another job's folder.
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (path != normal) {
    return absl::InvalidArgumentError(fmt::format(
        "path '{:.256}' must have no '.', '..' or empty part; write '{:.256}'", path, normal));
  }
  std::string known;
  for (const v1::Artifact& artifact : (*job)->record.artifacts()) {
    const std::string folder = artifact.path().substr(0, artifact.path().rfind('/') + 1);
    if (path == artifact.path() || path == folder + "config.json") return absl::OkStatus();
    known += (known.empty() ? "" : ", ") + artifact.path();
  }
  for (const auto& checkpoint : (*job)->checkpoints) {
    if (path.starts_with(checkpoint.artifact().path() + "/")) return absl::OkStatus();
    known += (known.empty() ? "" : ", ") + checkpoint.artifact().path() + "/…";
  }
  return absl::NotFoundError(fmt::format("job {} has no artifact '{:.256}'; it has {}",
                                         (*job)->id(), path, known.empty() ? "none" : known));
}

absl::Status Core::DrainNode(const v1::DrainNodeRequest& request) {
  if (absl::Status accepting = CheckAccepting(); !accepting.ok()) return accepting;
  Node* node = nodes_.Find(request.node());
  if (node == nullptr) {
    std::string known;
    for (const auto& [name, each] : nodes_.nodes()) known += (known.empty() ? "" : ", ") + name;
    return absl::NotFoundError(fmt::format("no node '{:.253}'; known: {}", request.node(),
                                           known.empty() ? "none" : known));
  }
  Change([&](Context& context) {
    node->drained = request.drain();
    context.changes.writes.PutNode(NodeTable::Record(*node));
    context.changes.schedule = true;
    Audit(request.drain() ? "drain_node" : "undrain_node", node->name, "OK", context.changes);
  });
  spdlog::info("event=node_drain node={} drain={}", node->name, request.drain());
  return absl::OkStatus();
}

absl::StatusOr<StreamHub::ReaderId> Core::WatchJob(v1::WatchJobRequest request,
                                                   std::shared_ptr<UpdateSink> sink) {
  if (closed_) return absl::UnavailableError("the coordinator is going down; try again");
  const absl::StatusOr<Job*> job = Find(request.job_id());
  if (!job.ok()) return job.status();
  if (absl::Status valid = StreamFilter::Check(request); !valid.ok()) return valid;
  request.set_job_id((*job)->id());
  return streams_.Add(request, (*job)->tensor(), std::move(sink));
}

absl::StatusOr<StreamHub::ReaderId> Core::WatchAll(const v1::WatchAllRequest& request,
                                                   std::shared_ptr<AllUpdatesSink> sink) {
  if (closed_) return absl::UnavailableError("the coordinator is going down; try again");
  if (absl::Status valid = StreamFilter::Check(request); !valid.ok()) return valid;
  return streams_.AddAll(request, std::move(sink));
}

void Core::Audit(const std::string& action, const std::string& subject, const std::string& outcome,
                 Changes& changes) const {
  v1::AuditRecord record;
  *record.mutable_time() = ToTimestamp(parts_.clock().wall);
  record.set_actor("client");
  record.set_action(action);
  record.set_subject(subject);
  record.set_outcome(outcome);
  changes.writes.AppendAudit(record);
}

}  // namespace tundish::jobs
