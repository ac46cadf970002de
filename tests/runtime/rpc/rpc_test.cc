#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/rpc/server.h"
#include "runtime/rpc/server_stream.h"
#include "runtime/rpc/status.h"
#include "runtime/rpc/task_scope.h"
#include "runtime/rpc/unary.h"
#include "tundish/v1/job_service.grpc.pb.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::rpc {
namespace {

namespace asio = boost::asio;
using v1::AgentMessage;
using v1::CoordinatorMessage;

/// One thread that runs an io_context until the test ends.
class Loop {
 public:
  Loop() : work_(context_.get_executor()), thread_([this] { context_.run(); }) {}
  ~Loop() {
    work_.reset();
    thread_.join();
  }
  asio::io_context& context() { return context_; }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

class FakeJobs : public v1::JobService::CallbackService {
 public:
  explicit FakeJobs(asio::any_io_executor executor) : executor_(executor) {}

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override {
    return SpawnUnary(context, executor_, [request, response]() -> asio::awaitable<absl::Status> {
      if (request->job_id() == "throw") throw std::runtime_error("secret detail");
      if (request->job_id() == "none") co_return absl::NotFoundError("no job 'none'");
      response->set_job_id(request->job_id());
      co_return absl::OkStatus();
    });
  }

  /// Sends numbered updates until the bound refuses one, then ends with that count as message.
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext*, const v1::WatchJobRequest* request) override {
    auto stream = ServerStream<v1::WatchJobResponse>::Make(executor_, 4096);
    int sent = 0;
    for (bool taken = true; taken; sent += taken) {
      v1::WatchJobResponse response;
      response.add_updates()->mutable_log()->set_text(std::string(1024, 'x'));
      response.mutable_updates(0)->set_seq(sent + 1);
      taken = stream->Send(std::move(response));
    }
    stream->Listen({.on_drained = {}, .on_done = [this] { done_.set_value(); }});
    if (!request->replay_only()) {
      stream->End(grpc::Status(grpc::StatusCode::OUT_OF_RANGE, fmt::format("{}", sent)));
    }
    return stream.get();
  }

  std::future<void> done() { return done_.get_future(); }

 private:
  asio::any_io_executor executor_;
  std::promise<void> done_;
};

/// Answers every message with its node name, and ends after "last".
class FakeNodes : public v1::NodeService::CallbackService {
 public:
  explicit FakeNodes(asio::any_io_executor executor) : executor_(executor) {}

  grpc::ServerBidiReactor<AgentMessage, CoordinatorMessage>* Connect(
      grpc::CallbackServerContext*) override {
    using Stream = BidiStream<AgentMessage, CoordinatorMessage>;
    auto stream = Stream::Make(executor_, 1 << 20);
    stream->Listen({.on_message =
                        [weak = std::weak_ptr<Stream>(stream)](AgentMessage message) {
                          auto stream = weak.lock();
                          CoordinatorMessage reply;
                          reply.mutable_register_reply()->set_version(message.node());
                          stream->Send(std::move(reply));
                          if (message.node() == "last") stream->End(grpc::Status::OK);
                        },
                    .on_done = [this] { done_.set_value(); }});
    return stream.get();
  }

  std::future<void> done() { return done_.get_future(); }

 private:
  asio::any_io_executor executor_;
  std::promise<void> done_;
};

class RpcTest : public testing::Test {
 protected:
  RpcTest() : jobs_(loop_.context().get_executor()), nodes_(loop_.context().get_executor()) {
    auto server = Server::Start({.address = "127.0.0.1:0", .services = {&jobs_, &nodes_}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

  Loop loop_;
  FakeJobs jobs_;
  FakeNodes nodes_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RpcTest, UnaryHandlersAnswerWithTheirStatus) {
  const struct {
    const char* job_id;
    absl::Status want;
  } cases[] = {
      {"a", absl::OkStatus()},
      {"none", absl::NotFoundError("no job 'none'")},
      {"throw", absl::InternalError("the handler failed unexpectedly")},
  };
  auto stub = v1::JobService::NewStub(channel_);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.job_id);
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(c.job_id);
    v1::Job job;
    EXPECT_EQ(FromGrpc(stub->GetJob(&context, request, &job)), c.want);
    EXPECT_EQ(job.job_id(), c.want.ok() ? c.job_id : "");
  }
}

TEST_F(RpcTest, AStreamDeliversWhatItAcceptedAndThenEnds) {
  auto stub = v1::JobService::NewStub(channel_);
  grpc::ClientContext context;
  auto reader = stub->WatchJob(&context, v1::WatchJobRequest());
  v1::WatchJobResponse response;
  uint32_t count = 0;
  while (reader->Read(&response)) EXPECT_EQ(response.updates(0).seq(), ++count);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), fmt::format("{}", count));
  EXPECT_GE(count, 4u);
  jobs_.done().wait();
}

TEST_F(RpcTest, AReaderThatLeavesEndsTheStream) {
  auto stub = v1::JobService::NewStub(channel_);
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_replay_only(true);  // the fake does not end it then
  auto reader = stub->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  jobs_.done().wait();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcTest, ABidiStreamKeepsTheOrderAndEndsFromEitherSide) {
  auto stub = v1::NodeService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Connect(&context);
  for (const char* name : {"a", "b", "c", "last"}) {
    AgentMessage message;
    message.set_node(name);
    ASSERT_TRUE(stream->Write(message));
  }
  std::string seen;
  CoordinatorMessage reply;
  while (stream->Read(&reply)) seen += reply.register_reply().version() + " ";
  EXPECT_EQ(seen, "a b c last ");
  EXPECT_TRUE(stream->Finish().ok());
  nodes_.done().wait();
}

TEST_F(RpcTest, StopCancelsCallsThatOutliveTheGrace) {
  auto stub = v1::NodeService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Connect(&context);
  AgentMessage message;
  message.set_node("a");
  ASSERT_TRUE(stream->Write(message));
  CoordinatorMessage reply;
  ASSERT_TRUE(stream->Read(&reply));
  server_->Stop(std::chrono::milliseconds(0));
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_FALSE(stream->Finish().ok());
  nodes_.done().wait();
}

TEST_F(RpcTest, APortInUseIsAnErrorThatNamesIt) {
  const auto second = Server::Start({.address = address(), .services = {&jobs_}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(address()), std::string::npos) << second.status();
  EXPECT_EQ(Server::Start({.address = "nowhere"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TaskScopeTest, CloseWaitsForTasksAndReportsWhatLeftThem) {
  asio::io_context context;
  TaskScope scope(context.get_executor());
  asio::steady_timer gate(context, std::chrono::steady_clock::time_point::max());
  bool ended = false;
  scope.Spawn([&]() -> asio::awaitable<void> {
    boost::system::error_code woken;
    co_await gate.async_wait(asio::redirect_error(asio::use_awaitable, woken));
    ended = true;
    throw std::runtime_error("left the task");
  });
  auto closed = asio::co_spawn(
      context, [&] { return scope.Close(); }, asio::use_future);
  asio::post(context, [&] {
    EXPECT_FALSE(ended);
    EXPECT_TRUE(scope.stopping());
    gate.cancel();
  });
  context.run();
  EXPECT_TRUE(ended);
  EXPECT_THROW(closed.get(), std::runtime_error);
}

}  // namespace
}  // namespace tundish::rpc
