#include "server/api/node_service.h"

#include <memory>

#include <boost/asio/post.hpp>

#include "runtime/base/ulid.h"
#include "runtime/rpc/server_stream.h"
#include "runtime/rpc/status.h"
#include "runtime/rpc/unary.h"
#include "server/api/file_sender.h"

namespace tundish::api {
namespace {

namespace asio = boost::asio;

/// Orders an agent may leave unread before its stream is ended.
constexpr size_t kBoundBytes = 16 << 20;

class StreamLink : public jobs::AgentLink {
 public:
  using Stream = rpc::BidiStream<v1::AgentMessage, v1::CoordinatorMessage>;
  explicit StreamLink(const std::shared_ptr<Stream>& stream) : stream_(stream) {}

  bool Send(v1::CoordinatorMessage message) override {
    const auto stream = stream_.lock();
    return stream != nullptr && stream->Send(std::move(message));
  }
  void End(const absl::Status& status) override {
    if (const auto stream = stream_.lock()) stream->End(rpc::ToGrpc(status));
  }

 private:
  std::weak_ptr<Stream> stream_;  // It owns this link by its callbacks.
};

}  // namespace

NodeService::NodeService(asio::any_io_executor loop, jobs::Core& core)
    : loop_(std::move(loop)), core_(core) {}

grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* NodeService::Connect(
    grpc::CallbackServerContext* context) {
  auto stream = StreamLink::Stream::Make(loop_, kBoundBytes);
  auto link = std::make_shared<StreamLink>(stream);
  stream->Listen(
      {.on_message = [this,
                      link](v1::AgentMessage message) { core_.OnAgentMessage(link, message); },
       .on_done = [this, link] { core_.OnAgentGone(link.get()); }});
  return stream.get();
}

grpc::ServerUnaryReactor* NodeService::RendezvousStore(grpc::CallbackServerContext* context,
                                                       const v1::StoreRequest* request,
                                                       v1::StoreReply* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, reactor, request, response] {
    core_.CallStore(*request, [reactor, response](absl::StatusOr<v1::StoreReply> reply) {
      if (reply.ok()) *response = *reply;
      reactor->Finish(rpc::ToGrpc(reply.status()));
    });
  });
  return reactor;
}

ClusterService::ClusterService(asio::any_io_executor loop, jobs::Core& core, store::Store& store,
                               std::filesystem::path scratch)
    : loop_(std::move(loop)), core_(core), store_(store), scratch_(std::move(scratch)), disk_(1) {}

ClusterService::~ClusterService() {
  disk_.join();
}

/// One at a time: two copies at once would need the room and the disk twice.
grpc::ServerWriteReactor<v1::BackupResponse>* ClusterService::Backup(
    grpc::CallbackServerContext* context, const v1::BackupRequest* request) {
  using Sender = FileSender<v1::BackupResponse>;
  auto stream = Sender::Stream::Make(disk_.get_executor(), Sender::kBoundBytes);
  asio::post(disk_, [this, stream] {
    const std::filesystem::path copy =
        scratch_ / fmt::format("backup-{}", NewUlid(std::chrono::system_clock::now()));
    if (absl::Status copied = store_.BackUp(copy); !copied.ok()) {
      return stream->End(rpc::ToGrpc(copied));
    }
    absl::StatusOr<File> file = OpenBeneath(scratch_, copy.filename());
    // The open file keeps its content; nobody has to remember to clean up.
    std::error_code ignored;
    std::filesystem::remove(copy, ignored);
    if (!file.ok()) return stream->End(rpc::ToGrpc(file.status()));
    Sender::Start(disk_.get_executor(), stream, std::make_shared<LocalFile>(*std::move(file)), 0);
  });
  return stream.get();
}

grpc::ServerUnaryReactor* ClusterService::ListNodes(grpc::CallbackServerContext* context,
                                                    const v1::ListNodesRequest* request,
                                                    v1::ListNodesResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, response]() -> asio::awaitable<absl::Status> {
    *response = core_.ListNodes();
    co_return co_await core_.Settled();
  });
}

grpc::ServerUnaryReactor* ClusterService::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request,
                                                    v1::DrainNodeResponse* response) {
  return rpc::SpawnUnary(context, loop_, [this, request]() -> asio::awaitable<absl::Status> {
    absl::Status drained = core_.DrainNode(*request);
    if (!drained.ok()) co_return drained;
    co_return co_await core_.Settled();
  });
}

}  // namespace tundish::api
