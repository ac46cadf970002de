#include "tests/client/fake_coordinator.h"

#include <algorithm>
#include <chrono>

namespace tundish::client {
namespace {

bool IsTerminal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

}  // namespace

v1::SubmitJobRequest FakeState::submitted() {
  std::lock_guard lock(mutex_);
  return submitted_;
}
void FakeState::SetJob(const v1::Job& job) {
  std::lock_guard lock(mutex_);
  job_ = job;
}
v1::Job FakeState::job() {
  std::lock_guard lock(mutex_);
  return job_;
}
void FakeState::Add(v1::JobUpdate update) {
  std::lock_guard lock(mutex_);
  update.set_seq(static_cast<uint32_t>(updates_.size()) + 1);
  if (update.has_event() && update.event().state() != v1::JOB_STATE_UNSPECIFIED) {
    job_.set_state(update.event().state());
  }
  updates_.push_back(std::move(update));
  changed_.notify_all();
}
void FakeState::AddMetric(uint32_t step, double loss) {
  v1::JobUpdate update;
  update.mutable_metric()->set_step(step);
  update.mutable_metric()->set_loss(loss);
  update.mutable_metric()->set_total_steps(10);
  Add(std::move(update));
}
void FakeState::AddEvent(v1::JobState state, const std::string& reason) {
  v1::JobUpdate update;
  update.mutable_event()->set_type("state_changed");
  update.mutable_event()->set_state(state);
  update.mutable_event()->set_reason(reason);
  Add(std::move(update));
}
void FakeState::BreakStreamsBehind(uint32_t seq) {
  std::lock_guard lock(mutex_);
  break_behind_ = seq;
  changed_.notify_all();
}
void FakeState::AwaitWatches(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return watches_ >= count; });
}
int FakeState::watches() {
  std::lock_guard lock(mutex_);
  return watches_;
}
void FakeState::SetNode(const std::string& name, const std::string& state) {
  std::lock_guard lock(mutex_);
  nodes_[name] = state;
}
void FakeState::SetFile(const std::string& path, const std::string& bytes) {
  std::lock_guard lock(mutex_);
  files_[path] = bytes;
}
void FakeState::SetSubmitError(const grpc::Status& status,
                               const std::vector<v1::InvalidField>& fields) {
  std::lock_guard lock(mutex_);
  submit_error_ = status;
  submit_fields_ = fields;
}

grpc::Status FakeJobService::SubmitJob(grpc::ServerContext* context,
                                       const v1::SubmitJobRequest* request,
                                       v1::SubmitJobResponse* response) {
  std::lock_guard lock(state_.mutex_);
  for (const v1::InvalidField& field : state_.submit_fields_) {
    context->AddTrailingMetadata("tundish-invalid-field-bin", field.SerializeAsString());
  }
  if (!state_.submit_error_.ok()) return state_.submit_error_;
  response->set_existing(state_.submitted_.request_id() == request->request_id());
  state_.submitted_ = *request;
  response->set_job_id(state_.job_.job_id());
  return grpc::Status::OK;
}

grpc::Status FakeJobService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                    v1::Job* response) {
  std::lock_guard lock(state_.mutex_);
  if (request->job_id().empty() || !state_.job_.job_id().starts_with(request->job_id())) {
    return {grpc::StatusCode::NOT_FOUND, "no job \"" + request->job_id() + "\""};
  }
  *response = state_.job_;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  std::lock_guard lock(state_.mutex_);
  const bool wanted = request->states().empty() ||
                      std::ranges::count(request->states(), static_cast<int>(state_.job_.state()));
  if (wanted) *response->add_jobs() = state_.job_;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest*,
                                       v1::CancelJobResponse* response) {
  state_.AddEvent(v1::CANCELLED, "cancelled_by_client");
  response->set_state(v1::CANCELLED);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ExplainJob(grpc::ServerContext*, const v1::ExplainJobRequest*,
                                        v1::ExplainJobResponse* response) {
  response->set_state(v1::PENDING);
  response->set_text("waits for 4 devices, 2 are free");
  return grpc::Status::OK;
}

grpc::Status FakeJobService::WatchJob(grpc::ServerContext* context,
                                      const v1::WatchJobRequest* request,
                                      grpc::ServerWriter<v1::WatchJobResponse>* writer) {
  std::unique_lock lock(state_.mutex_);
  ++state_.watches_;
  state_.changed_.notify_all();
  for (size_t next = request->after_seq();;) {
    while (next < state_.updates_.size()) {
      const v1::JobUpdate update = state_.updates_[next++];
      if (update.has_metric() && request->without_metrics()) continue;
      if (update.has_event() && request->without_events()) continue;
      if (update.has_log() && request->without_logs()) continue;
      v1::WatchJobResponse response;
      *response.add_updates() = update;
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
      if (state_.break_behind_ != 0 && update.seq() >= state_.break_behind_) {
        return {grpc::StatusCode::UNAVAILABLE, "going down"};
      }
      if (update.has_event() && IsTerminal(update.event().state())) return grpc::Status::OK;
    }
    if (request->replay_only() || IsTerminal(state_.job_.state())) return grpc::Status::OK;
    // A cancelled call has no notification in the synchronous API.
    state_.changed_.wait_for(lock, std::chrono::milliseconds(20));
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
  }
}

grpc::Status FakeJobService::FetchArtifact(grpc::ServerContext*,
                                           const v1::FetchArtifactRequest* request,
                                           grpc::ServerWriter<v1::FetchArtifactResponse>* writer) {
  std::lock_guard lock(state_.mutex_);
  const auto file = state_.files_.find(request->path());
  if (file == state_.files_.end()) {
    return {grpc::StatusCode::NOT_FOUND, "no artifact " + request->path()};
  }
  constexpr size_t kChunk = 1000;
  for (size_t offset = 0; offset < file->second.size(); offset += kChunk) {
    v1::FetchArtifactResponse response;
    response.set_total_bytes(file->second.size());
    response.set_chunk(file->second.substr(offset, kChunk));
    writer->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ListCheckpoints(grpc::ServerContext*,
                                             const v1::ListCheckpointsRequest*,
                                             v1::ListCheckpointsResponse* response) {
  v1::Artifact& checkpoint = *response->add_checkpoints();
  checkpoint.set_kind("checkpoint");
  checkpoint.set_path("jobs/a/checkpoints/step-5");
  checkpoint.set_step(5);
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                                           v1::ListNodesResponse* response) {
  std::lock_guard lock(state_.mutex_);
  for (const auto& [name, node_state] : state_.nodes_) {
    v1::NodeStatus& node = *response->add_nodes();
    node.set_node(name);
    node.set_state(node_state);
    node.add_devices()->mutable_device()->set_name("cpu:0");
  }
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::DrainNode(grpc::ServerContext*,
                                           const v1::DrainNodeRequest* request,
                                           v1::DrainNodeResponse*) {
  state_.SetNode(request->node(), request->drain() ? "drained" : "ready");
  return grpc::Status::OK;
}

FakeCoordinator::FakeCoordinator(FakeState& state, int port) : jobs_(state), cluster_(state) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(&jobs_);
  builder.RegisterService(&cluster_);
  server_ = builder.BuildAndStart();
}

FakeCoordinator::~FakeCoordinator() {
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace tundish::client
