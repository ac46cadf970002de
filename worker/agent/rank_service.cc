#include "worker/agent/rank_service.h"

#include <chrono>
#include <string>

#include <spdlog/spdlog.h>

#include "runtime/rpc/server_stream.h"
#include "runtime/rpc/status.h"
#include "worker/agent/store_relay.h"

namespace tundish::agent {

namespace {

/// Orders waiting for one rank; an assignment is some hundred KB at most.
constexpr size_t kOrderBoundBytes = 32 << 20;

}  // namespace

/// One Attach call between its first and last message; on the event loop only.
struct RankService::Attachment {
  std::shared_ptr<RankStream> stream;
  std::string worker_id;  // Empty until its Hello was accepted.
};

RankService::RankService(boost::asio::io_context& io, Workers& workers,
                         v1::NodeService::StubInterface& stub, Callbacks callbacks)
    : io_(io), workers_(workers), stub_(stub), callbacks_(std::move(callbacks)) {}

grpc::ServerBidiReactor<v1::RankReport, v1::RankOrder>* RankService::Attach(
    grpc::CallbackServerContext* context) {
  auto attachment = std::make_shared<Attachment>();
  const std::shared_ptr<RankStream> stream = RankStream::Make(io_.get_executor(), kOrderBoundBytes);
  attachment->stream = stream;
  stream->Listen(
      {.on_message =
           [this, attachment](v1::RankReport report) { OnMessage(*attachment, std::move(report)); },
       .on_done =
           [this, attachment] {
             const auto ended = std::move(attachment->stream);
             if (attachment->worker_id.empty()) return;
             workers_.Detach(attachment->worker_id, ended.get());
           }});
  return stream.get();
}

void RankService::OnMessage(Attachment& attachment, v1::RankReport report) {
  const std::shared_ptr<RankStream>& stream = attachment.stream;
  if (attachment.worker_id.empty()) {
    const absl::Status attached = workers_.Attach(report, stream);
    if (attached.ok()) {
      attachment.worker_id = report.worker_id();  // A spare's own, until it becomes a worker.
      return;
    }
    spdlog::warn("event=attach_refused worker={} job={} error=\"{}\"", report.worker_id(),
                 report.job_id(), std::string(attached.message()));
    return stream->End(rpc::ToGrpc(attached));
  }
  if (workers_.IsSpare(attachment.worker_id)) return;
  // A spare goes on as the worker it has become.
  if (report.worker_id() != attachment.worker_id) {
    attachment.worker_id = workers_.IdOf(attachment.worker_id);
  }
  if (report.worker_id() != attachment.worker_id || report.has_hello()) {
    return stream->End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                    "reports of worker '" + attachment.worker_id +
                                        "' are expected here, not of '" + report.worker_id() +
                                        "'"));
  }
  workers_.NoteReport(report);
  callbacks_.on_report(std::move(report));
}

grpc::ServerUnaryReactor* RankService::RendezvousStore(grpc::CallbackServerContext* context,
                                                       const v1::StoreRequest* request,
                                                       v1::StoreReply* reply) {
  const auto now = std::chrono::system_clock::now();
  return StoreRelay::Start(io_, {.stub = &stub_,
                                 .deadline = StoreDeadline(now, context->deadline(), *request),
                                 .request = request,
                                 .reply = reply,
                                 .admit = [this, request] {
                                   callbacks_.on_store_call();
                                   return workers_.CheckMember(request->worker_id(),
                                                               request->job_id());
                                 }});
}

}  // namespace tundish::agent
