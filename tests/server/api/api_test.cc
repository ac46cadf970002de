#include <filesystem>
#include <fstream>
#include <future>
#include <sys/stat.h>
#include <thread>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/open_beneath.h"
#include "runtime/base/ulid.h"
#include "runtime/rpc/server.h"
#include "server/api/job_service.h"
#include "server/api/node_service.h"
#include "server/store/store.h"
#include "tests/fakes/fake_agent.h"

namespace tundish::api {
namespace {

namespace asio = boost::asio;
using testing::HasSubstr;

/// A core behind its real services on a free port, with its loop on a thread of its own.
class ApiTest : public testing::Test {
 protected:
  ApiTest() : work_(loop_.get_executor()) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("api_" + NewUlid(std::chrono::system_clock::now()));
    std::filesystem::create_directories(folder_ / "artifacts");
    store_ = store::Store::Open(folder_ / "tundish.db").value();
    jobs::Settings settings;
    settings.artifact_root = folder_ / "artifacts";
    core_ = std::make_unique<jobs::Core>(jobs::Core::Parts{
        .loop = loop_.get_executor(),
        .store = *store_,
        .settings = settings,
        .clock =
            [] {
              return jobs::Now{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
            },
        .remove_folder = {}});
    EXPECT_TRUE(core_->Load().ok());
    jobs_ = std::make_unique<JobService>(loop_.get_executor(), *core_, settings.artifact_root);
    nodes_ = std::make_unique<NodeService>(loop_.get_executor(), *core_);
    cluster_ = std::make_unique<ClusterService>(loop_.get_executor(), *core_, *store_, folder_);
    thread_ = std::thread([this] { loop_.run(); });
    server_ = rpc::Server::Start({.address = "127.0.0.1:0",
                                  .services = {jobs_.get(), nodes_.get(), cluster_.get()}})
                  .value();
    channel_ = grpc::CreateChannel(fmt::format("127.0.0.1:{}", server_->port()),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::JobService::NewStub(channel_);
  }

  ~ApiTest() override {
    OnLoop([this] {
      agent_.Forget();
      core_->Close();
    });
    server_->Stop(std::chrono::milliseconds(0));
    work_.reset();
    loop_.stop();
    thread_.join();
    jobs_.reset();
    cluster_.reset();
    core_.reset();
    store_->Close();
    std::filesystem::remove_all(folder_);
  }

  template <class Act>
  void OnLoop(Act act) {
    std::promise<void> done;
    asio::post(loop_, [&] {
      act();
      done.set_value();
    });
    done.get_future().wait();
  }

  /// A call that has returned was preceded by every order of what it saw: handle them until none
  /// comes.
  void Settle() {
    for (bool busy = true; busy;) {
      grpc::ClientContext context;
      v1::ListJobsResponse jobs;
      ASSERT_TRUE(stub_->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
      OnLoop([&] { busy = agent_.Process(); });
    }
  }

  static v1::SubmitJobRequest Request(const std::string& id) {
    v1::SubmitJobRequest request;
    request.set_request_id(id);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name("weekly");
    spec.mutable_data()->set_folder("/images");
    spec.mutable_model()->set_preset("vit_cell");
    spec.mutable_training()->set_steps(2);
    spec.mutable_training()->set_global_batch(4);
    return request;
  }

  std::string Submit(const std::string& request_id) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const grpc::Status status = stub_->SubmitJob(&context, Request(request_id), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job_id();
  }

  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::filesystem::path folder_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<jobs::Core> core_;
  std::unique_ptr<JobService> jobs_;
  std::unique_ptr<NodeService> nodes_;
  std::unique_ptr<ClusterService> cluster_;
  std::thread thread_;
  std::unique_ptr<rpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  fakes::FakeAgent agent_{"host-a", 1};
};

TEST_F(ApiTest, EveryWrongFieldTravelsAsATrailer) {
  v1::SubmitJobRequest request = Request("r");
  request.mutable_spec()->mutable_model()->set_heads(7);
  request.mutable_spec()->mutable_training()->set_global_batch(0);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  const grpc::Status status = stub_->SubmitJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  std::vector<std::string> fields;
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto [first, last] = trailers.equal_range("tundish-invalid-field-bin");
  for (auto entry = first; entry != last; ++entry) {
    v1::InvalidField field;
    ASSERT_TRUE(field.ParseFromArray(entry->second.data(), static_cast<int>(entry->second.size())));
    fields.push_back(field.field());
    EXPECT_THAT(status.error_message(), HasSubstr(field.field()));
  }
  EXPECT_THAT(fields, testing::UnorderedElementsAre("model.hidden", "training.global_batch"));
}

TEST_F(ApiTest, ALimitThatIsNotEnforcedIsRefused) {
  v1::SubmitJobRequest request = Request("r");
  request.mutable_spec()->mutable_scheduling()->add_after()->set_job("earlier");
  request.mutable_spec()->mutable_recovery()->set_max_hangs(1);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  const grpc::Status status = stub_->SubmitJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("scheduling.after"));
  EXPECT_THAT(status.error_message(), HasSubstr("recovery.max_hangs=1"));
}

TEST_F(ApiTest, HundredsOfWrongFieldsStillArriveAsAnAnswer) {
  v1::SubmitJobRequest request = Request("r");
  for (int i = 0; i < 400; ++i) {
    request.mutable_spec()->mutable_data()->add_classes(std::string(100, '\x01'));
  }
  request.mutable_spec()->mutable_model()->set_heads(7);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  const grpc::Status status = stub_->SubmitJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

TEST_F(ApiTest, ManyCallersOfOneRequestGetOneJob) {
  std::vector<std::future<v1::SubmitJobResponse>> calls;
  for (int i = 0; i < 16; ++i) {
    calls.push_back(std::async(std::launch::async, [this] {
      grpc::ClientContext context;
      v1::SubmitJobResponse response;
      EXPECT_TRUE(stub_->SubmitJob(&context, Request("same"), &response).ok());
      return response;
    }));
  }
  std::set<std::string> ids;
  int made = 0;
  for (auto& call : calls) {
    const v1::SubmitJobResponse response = call.get();
    ids.insert(response.job_id());
    made += !response.existing();
  }
  EXPECT_EQ(ids.size(), 1u);
  EXPECT_EQ(made, 1);
}

TEST_F(ApiTest, AWatcherSeesTheJobToItsEndAndFetchesTheModel) {
  const std::string id = Submit("r");
  grpc::ClientContext watching;
  v1::WatchJobRequest watch;
  watch.set_job_id(id);
  auto reader = stub_->WatchJob(&watching, watch);
  OnLoop([this] { agent_.Connect(*core_); });
  Settle();
  OnLoop([&] {
    agent_.Step(id);
    agent_.Step(id);
    agent_.Finish(id);
  });
  Settle();
  std::vector<v1::JobUpdate> updates;
  v1::WatchJobResponse message;
  while (reader->Read(&message)) {
    for (const auto& update : message.updates()) {
      updates.push_back(update);
      EXPECT_EQ(update.seq(), updates.size());
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_FALSE(updates.empty());
  EXPECT_EQ(updates.back().event().state(), v1::SUCCEEDED);

  const std::string path = id + "/model/model.safetensors";
  std::filesystem::create_directories(folder_ / "artifacts" / id / "model");
  std::string content(3 << 20, 'x');
  content += "end";
  std::ofstream(folder_ / "artifacts" / path) << content;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{content.size() - 3}, content.size()}) {
    grpc::ClientContext context;
    v1::FetchArtifactRequest fetch;
    fetch.set_job_id(id);
    fetch.set_path(path);
    fetch.set_offset(offset);
    auto stream = stub_->FetchArtifact(&context, fetch);
    std::string got;
    v1::FetchArtifactResponse chunk;
    while (stream->Read(&chunk)) {
      got += chunk.chunk();
      EXPECT_EQ(chunk.total_bytes(), content.size());
    }
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_TRUE(got == content.substr(offset)) << got.size() << " bytes from " << offset;
  }
  grpc::ClientContext context;
  v1::FetchArtifactRequest other;
  other.set_job_id(id);
  other.set_path("../tundish.db");
  auto stream = stub_->FetchArtifact(&context, other);
  v1::FetchArtifactResponse chunk;
  EXPECT_FALSE(stream->Read(&chunk));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ApiTest, AWatcherOfNoJobIsToldSo) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id("00000000000000000000000000");
  auto reader = stub_->WatchJob(&context, request);
  v1::WatchJobResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ApiTest, AnAgentRegistersAndGetsItsOrders) {
  const std::string id = Submit("r");
  auto nodes = v1::NodeService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = nodes->Connect(&context);
  v1::AgentMessage message;
  message.set_node("host-b");
  message.set_incarnation(NewUlid(std::chrono::system_clock::now()));
  message.mutable_register_()->set_version("0.1.0");
  message.mutable_register_()->add_devices()->set_name("cpu:0");
  message.mutable_register_()->mutable_devices(0)->set_kind("cpu");
  ASSERT_TRUE(stream->Write(message));
  v1::CoordinatorMessage order;
  ASSERT_TRUE(stream->Read(&order));
  EXPECT_EQ(order.register_reply().heartbeat_interval_ms(), 500u);
  ASSERT_TRUE(stream->Read(&order));
  EXPECT_EQ(order.run_task().job_id(), id);
  EXPECT_EQ(order.run_task().check_data().data().folder(), "/images");

  auto cluster = v1::ClusterService::NewStub(channel_);
  grpc::ClientContext listing;
  v1::ListNodesResponse list;
  ASSERT_TRUE(cluster->ListNodes(&listing, v1::ListNodesRequest(), &list).ok());
  ASSERT_EQ(list.nodes_size(), 1);
  EXPECT_EQ(list.nodes(0).state(), "ready");
  grpc::ClientContext draining;
  v1::DrainNodeRequest drain;
  v1::DrainNodeResponse drained;
  drain.set_node("host-c");
  const grpc::Status unknown = cluster->DrainNode(&draining, drain, &drained);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("host-b"));
  stream->WritesDone();
  while (stream->Read(&order)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ApiTest, AnAgentMustRegisterFirstAndRanksNeedAJob) {
  auto nodes = v1::NodeService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = nodes->Connect(&context);
  v1::AgentMessage message;
  message.set_node("host-b");
  message.mutable_heartbeat();
  ASSERT_TRUE(stream->Write(message));
  v1::CoordinatorMessage order;
  EXPECT_FALSE(stream->Read(&order));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext calling;
  v1::StoreRequest call;
  call.set_job_id("none");
  call.set_key("k");
  call.mutable_check();
  v1::StoreReply reply;
  EXPECT_EQ(nodes->RendezvousStore(&calling, call, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ApiTest, NothingLeadsOutOfTheArtifactRoot) {
  const std::filesystem::path root = folder_ / "artifacts";
  std::ofstream(folder_ / "secret") << "s";
  std::ofstream(root / "file") << "content";
  std::filesystem::create_symlink(folder_ / "secret", root / "absolute");
  std::filesystem::create_symlink("../secret", root / "relative");
  std::filesystem::create_symlink("file", root / "inside");
  std::filesystem::create_directory(root / "folder");
  ASSERT_EQ(mkfifo((root / "pipe").c_str(), 0600), 0);
  const struct {
    std::string path;
    absl::StatusCode want;
  } cases[] = {
      {"file", absl::StatusCode::kOk},
      {"inside", absl::StatusCode::kOk},
      {"../secret", absl::StatusCode::kPermissionDenied},
      {"folder/../../secret", absl::StatusCode::kPermissionDenied},
      {"/etc/passwd", absl::StatusCode::kPermissionDenied},
      {"absolute", absl::StatusCode::kPermissionDenied},
      {"relative", absl::StatusCode::kPermissionDenied},
      {"folder", absl::StatusCode::kFailedPrecondition},
      {"pipe", absl::StatusCode::kFailedPrecondition},
      {"none", absl::StatusCode::kNotFound},
      {"", absl::StatusCode::kNotFound},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.path);
    EXPECT_EQ(OpenBeneath(root, c.path).status().code(), c.want);
  }
}

}  // namespace
}  // namespace tundish::api
