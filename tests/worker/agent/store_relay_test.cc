#include <signal.h>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_fixture.h"
#include "tundish/v1/rank.grpc.pb.h"

namespace tundish::agent {
namespace {

class StoreRelayTest : public AgentFixture {
 protected:
  void SetUp() override {
    StartAgent();
    StartReadyWorker("w1");
  }
};

TEST_F(StoreRelayTest, RelaysTheCallAndItsAnswer) {
  Assign("w1", 3, "get k1 20000");
  const auto request = coordinator_.WaitForStoreCall("k1");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->job_id(), kJob);
  EXPECT_EQ(request->worker_id(), "w1");
  EXPECT_EQ(request->job_epoch(), 3u);
  EXPECT_EQ(request->get().timeout_ms(), 20000u);
  coordinator_.AnswerStoreCall("k1", grpc::Status::OK, "steel");
  EXPECT_EQ(ExpectLog("w1", "store"), "store 0 steel|");
}

TEST_F(StoreRelayTest, PassesOnARefusalUnchanged) {
  Assign("w1", 3, "get k1 20000");
  ASSERT_TRUE(coordinator_.WaitForStoreCall("k1").has_value());
  coordinator_.AnswerStoreCall(
      "k1", grpc::Status(grpc::StatusCode::ABORTED, "job_epoch 3 has ended; 4 is current"), "");
  EXPECT_EQ(ExpectLog("w1", "store"), "store 10 |job_epoch 3 has ended; 4 is current");
}

TEST_F(StoreRelayTest, PassesOnACancellation) {
  Assign("w1", 3, "cancel k1");
  ASSERT_TRUE(coordinator_.WaitForStoreCall("k1").has_value());
  Acknowledge("w1", 99);  // The fake rank's sign to cancel.
  EXPECT_TRUE(coordinator_.WaitForCancelledStoreCall("k1"));
  EXPECT_THAT(ExpectLog("w1", "store"), testing::StartsWith("store 1 "));
}

TEST_F(StoreRelayTest, PassesOnADeadline) {
  Assign("w1", 3, "get k1 300");
  EXPECT_TRUE(coordinator_.WaitForCancelledStoreCall("k1"));
  EXPECT_THAT(ExpectLog("w1", "store"), testing::StartsWith("store 4 "));
}

TEST_F(StoreRelayTest, WaitsForACoordinatorThatIsAway) {
  Assign("w1", 3, "get k1 25000");
  ASSERT_TRUE(coordinator_.WaitForStoreCall("k1").has_value());
  Forget();
  coordinator_.Stop();  // The call is under way and lost with it.
  coordinator_.Start();
  ASSERT_TRUE(coordinator_.WaitForStoreCall("k1").has_value()) << "it was not asked again";
  Expect([](const v1::AgentMessage& m) { return m.has_register_(); }, "Register");
  coordinator_.AnswerStoreCall("k1", grpc::Status::OK, "again");
  EXPECT_EQ(ExpectLog("w1", "store"), "store 0 again|");
}

TEST_F(StoreRelayTest, AnEndedRankTakesItsCallsAlong) {
  Assign("w1", 3, "cancel k1");
  ASSERT_TRUE(coordinator_.WaitForStoreCall("k1").has_value());
  v1::CoordinatorMessage message;
  message.mutable_kill_worker()->set_worker_id("w1");
  Send(message);
  EXPECT_TRUE(coordinator_.WaitForCancelledStoreCall("k1"));
}

TEST_F(StoreRelayTest, RefusesAWorkerOfNobody) {
  const auto channel = grpc::CreateChannel("unix:" + (folder_.path() / "state/rank.sock").string(),
                                           grpc::InsecureChannelCredentials());
  const auto stub = v1::RankService::NewStub(channel);
  grpc::ClientContext context;
  v1::StoreRequest request;
  request.set_worker_id("w1");
  request.set_job_id("other");
  request.set_set("x");
  v1::StoreReply reply;
  const grpc::Status status = stub->RendezvousStore(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("no worker 'w1' of job 'other'"));
}

}  // namespace
}  // namespace tundish::agent
