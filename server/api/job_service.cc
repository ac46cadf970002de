#include "server/api/job_service.h"

#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "runtime/rpc/server_stream.h"
#include "runtime/rpc/status.h"
#include "runtime/rpc/unary.h"
#include "server/api/agent_file.h"
#include "server/api/file_sender.h"
#include "server/spec/resolve.h"

namespace tundish::api {
namespace {

namespace asio = boost::asio;
using Awaitable = asio::awaitable<absl::Status>;

/// Fields of a spec that nothing acts on yet.
constexpr std::string_view kNotServed[] = {
    "kind",
    "stopping",
    "publish",
    "data.replay",
    "model.parent",
    "model.extend_classes",
    "model.frozen_blocks",
    "model.weights_sha256",
    "parallel.zero1",
    "training.effective_beta",
    "training.optimizer.head_rate",
    "evaluation.every_steps",
    "evaluation.good_classes",
    "evaluation.costs",
    "checkpoints.keep_best",
    "checkpoints.keep_every_epochs",
    "recovery.stragglers",
};

/// Whether the field at `path` (names joined by dots) has another value than that of an empty
/// message.
bool IsSet(const google::protobuf::Message& message, std::string_view path) {
  const std::string name(path.substr(0, path.find('.')));
  const auto* field = message.GetDescriptor()->FindFieldByName(name);
  const auto* reflection = message.GetReflection();
  if (field->is_repeated()) return reflection->FieldSize(message, field) > 0;
  if (!reflection->HasField(message, field)) return false;
  if (name.size() == path.size()) return true;
  return IsSet(reflection->GetMessage(message, field), path.substr(name.size() + 1));
}

/// Limits that the scheduler knows but the coordinator does not enforce yet are refused: a field
/// that is accepted and has no effect would be worse than none.
std::vector<v1::InvalidField> NotEnforced(const v1::JobSpec& resolved) {
  std::vector<v1::InvalidField> found;
  const auto refuse = [&found](std::string_view field, std::string value) {
    v1::InvalidField& wrong = found.emplace_back();
    wrong.set_field(std::string(field));
    wrong.set_value(std::move(value));
    wrong.set_expected("to be left out: this version does not act on it");
  };
  for (const std::string_view path : kNotServed) {
    if (IsSet(resolved, path)) refuse(path, "set");
  }
  if (resolved.training().class_weights() == v1::EFFECTIVE_NUMBER) {
    refuse("training.class_weights", "EFFECTIVE_NUMBER");
  }
  v1::JobSpec plain = resolved;
  plain.clear_scheduling();
  plain.mutable_recovery()->clear_max_host_failures();
  plain.mutable_recovery()->clear_max_start_failures();
  plain.mutable_recovery()->clear_max_hangs();
  plain = spec::Validate(plain).spec;
  const v1::SchedulingSpec& scheduling = resolved.scheduling();
  const v1::RecoverySpec& recovery = resolved.recovery();
  if (scheduling.max_run_seconds() != 0) {
    refuse("scheduling.max_run_seconds", std::to_string(scheduling.max_run_seconds()));
  }
  if (scheduling.after_size() != 0) {
    refuse("scheduling.after", std::to_string(scheduling.after_size()) + " jobs");
  }
  if (!scheduling.preemptible()) refuse("scheduling.preemptible", "false");
  if (recovery.max_host_failures() != plain.recovery().max_host_failures()) {
    refuse("recovery.max_host_failures", std::to_string(recovery.max_host_failures()));
  }
  if (recovery.max_start_failures() != plain.recovery().max_start_failures()) {
    refuse("recovery.max_start_failures", std::to_string(recovery.max_start_failures()));
  }
  if (recovery.max_hangs() != plain.recovery().max_hangs()) {
    refuse("recovery.max_hangs", std::to_string(recovery.max_hangs()));
  }
  return found;
}

/// Every wrong field travels as a trailer of its own, so that a client can mark it; at most as many
/// as fit into the metadata that gRPC lets through (8 KiB).
absl::StatusOr<v1::JobSpec> Resolve(const v1::JobSpec& spec, grpc::CallbackServerContext* context) {
  constexpr size_t kMostBytes = 3072;
  spec::ValidationResult result = spec::Validate(spec);
  if (result.invalid.empty()) result.invalid = NotEnforced(result.spec);
  size_t bytes = 0;
  for (const v1::InvalidField& field : result.invalid) {
    const std::string text = field.SerializeAsString();
    if ((bytes += text.size()) > kMostBytes) break;
    context->AddTrailingMetadata("tundish-invalid-field-bin", text);
  }
  if (!result.invalid.empty()) return result.ToStatus(kMostBytes);
  return std::move(result.spec);
}

/// Answers with `value` once everything it says is durable.
template <class T>
Awaitable Answer(jobs::Core& core, absl::StatusOr<T> value, T* response) {
  if (!value.ok()) co_return value.status();
  *response = *std::move(value);
  co_return co_await core.Settled();
}

/// The hub's view of a reader's stream.
template <class Sink, class Response>
class StreamSink : public Sink {
 public:
  using Stream = rpc::ServerStream<Response>;
  explicit StreamSink(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void Send(Response message) override { stream_->SendAnyway(std::move(message)); }
  void End(const absl::Status& status) override { stream_->End(rpc::ToGrpc(status)); }
  size_t queued_bytes() const override { return stream_->queued_bytes(); }

 private:
  std::shared_ptr<Stream> stream_;
};

/// Gives a new stream to `watch`, which registers it as a reader of the core.
template <class Sink, class Response, class Watch>
grpc::ServerWriteReactor<Response>* Follow(asio::any_io_executor loop, jobs::Core& core,
                                           Watch watch) {
  // The hub keeps the bound: it knows what may be dropped and what may not.
  auto stream = rpc::ServerStream<Response>::Make(loop, SIZE_MAX);
  asio::post(loop, [&core, stream, watch = std::move(watch)] {
    const auto reader = watch(std::make_shared<StreamSink<Sink, Response>>(stream));
    if (!reader.ok()) {
      stream->End(rpc::ToGrpc(reader.status()));
      return;
    }
    stream->Listen({.on_drained = [&core, id = *reader] { core.streams().Drained(id); },
                    .on_done = [&core, id = *reader] { core.streams().Remove(id); }});
  });
  return stream.get();
}

}  // namespace

JobService::JobService(asio::any_io_executor loop, jobs::Core& core, std::string artifact_root)
    : loop_(std::move(loop)), core_(core), artifact_root_(std::move(artifact_root)), disk_(2) {}

JobService::~JobService() {
  disk_.join();
}

grpc::ServerUnaryReactor* JobService::SubmitJob(grpc::CallbackServerContext* context,
                                                const v1::SubmitJobRequest* request,
                                                v1::SubmitJobResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, context, request, response]() -> Awaitable {
    absl::StatusOr<v1::JobSpec> spec = Resolve(request->spec(), context);
    if (!spec.ok()) co_return spec.status();
    auto submitted = core_.Submit(request->request_id(), *spec);
    co_return co_await Answer(core_, std::move(submitted), response);
  });
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request, v1::Job* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto job = core_.GetJob(request->job_id());
    co_return co_await Answer(core_, std::move(job), response);
  });
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto jobs = core_.ListJobs(*request);
    co_return co_await Answer(core_, std::move(jobs), response);
  });
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::CancelJobResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto cancelled = core_.CancelJob(*request);
    co_return co_await Answer(core_, std::move(cancelled), response);
  });
}

grpc::ServerUnaryReactor* JobService::ExplainJob(grpc::CallbackServerContext* context,
                                                 const v1::ExplainJobRequest* request,
                                                 v1::ExplainJobResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto explained = core_.ExplainJob(request->job_id());
    co_return co_await Answer(core_, std::move(explained), response);
  });
}

grpc::ServerUnaryReactor* JobService::PlanJob(grpc::CallbackServerContext* context,
                                              const v1::PlanJobRequest* request,
                                              v1::PlanJobResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, context, request, response]() -> Awaitable {
    absl::StatusOr<v1::JobSpec> spec = Resolve(request->spec(), context);
    if (!spec.ok()) co_return spec.status();
    *response = core_.PlanJob(*spec);
    co_return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                      const v1::ListCheckpointsRequest* request,
                                                      v1::ListCheckpointsResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto checkpoints = core_.ListCheckpoints(request->job_id());
    co_return co_await Answer(core_, std::move(checkpoints), response);
  });
}

grpc::ServerUnaryReactor* JobService::ListArtifacts(grpc::CallbackServerContext* context,
                                                    const v1::ListArtifactsRequest* request,
                                                    v1::ListArtifactsResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request, response]() -> Awaitable {
    auto files = core_.ListArtifacts(request->job_id());
    co_return co_await Answer(core_, std::move(files), response);
  });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobService::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return Follow<jobs::UpdateSink, v1::WatchJobResponse>(
      loop_, core_,
      [this, request = *request](auto sink) { return core_.WatchJob(request, std::move(sink)); });
}

grpc::ServerWriteReactor<v1::WatchAllResponse>* JobService::WatchAll(
    grpc::CallbackServerContext* context, const v1::WatchAllRequest* request) {
  return Follow<jobs::AllUpdatesSink, v1::WatchAllResponse>(
      loop_, core_,
      [this, request = *request](auto sink) { return core_.WatchAll(request, std::move(sink)); });
}

grpc::ServerWriteReactor<v1::FetchArtifactResponse>* JobService::FetchArtifact(
    grpc::CallbackServerContext* context, const v1::FetchArtifactRequest* request) {
  using Sender = FileSender<v1::FetchArtifactResponse>;
  const auto strand = asio::make_strand(disk_.get_executor());
  auto stream = Sender::Stream::Make(strand, Sender::kBoundBytes);
  asio::post(loop_, [this, strand, stream, request = *request] {
    if (absl::Status known = core_.CheckArtifact(request.job_id(), request.path()); !known.ok()) {
      stream->End(rpc::ToGrpc(known));
      return;
    }
    auto remote = std::make_shared<AgentFile>(loop_, core_, core_.NodesNearFiles(request.job_id()),
                                              artifact_root_, request.path());
    asio::post(strand, [this, strand, stream, remote, request] {
      absl::StatusOr<File> file = OpenBeneath(artifact_root_, request.path());
      if (absl::IsNotFound(file.status())) {
        return Sender::Start(strand, stream, remote, request.offset());
      }
      if (!file.ok()) return stream->End(rpc::ToGrpc(file.status()));
      Sender::Start(strand, stream, std::make_shared<LocalFile>(*std::move(file)),
                    request.offset());
    });
  });
  return stream.get();
}

}  // namespace tundish::api
