#include "worker/rank/agent_link.h"

#include <future>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"
#include "tests/worker/rank/fake_agent.h"
#include "worker/rank/rendezvous_store.h"

namespace tundish::rank {
namespace {

using Numbers = std::vector<uint64_t>;

v1::RankReport Step(uint32_t step) {
  v1::RankReport report;
  report.mutable_step()->set_step(step);
  return report;
}

class AgentLinkTest : public ::testing::Test {
 protected:
  AgentLinkTest() : socket_(folder_.path() + "/agent.sock"), agent_(std::in_place, socket_) {}

  std::unique_ptr<AgentLink> Connect(std::function<void(const v1::RankOrder&)> on_order) {
    auto link = std::make_unique<AgentLink>(
        OpenAgentChannel("unix:" + socket_),
        Identity{.worker_id = "w1", .job_id = "j1", .secret = "s3cret"}, std::move(on_order),
        [this](const std::string& error) { refused_.set_value(error); });
    link->Start();
    return link;
  }

  std::promise<std::string> refused_;
  const testing::TemporaryFolder folder_;
  const std::string socket_;
  std::optional<FakeAgent> agent_;
};

TEST_F(AgentLinkTest, GreetsThenReportsInOrder) {
  const auto link = Connect([](const v1::RankOrder&) {});
  for (uint32_t i = 0; i < 3; ++i) link->Report(Step(i));
  EXPECT_EQ(agent_->WaitForReports(4), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(agent_->report(0).hello().secret(), "s3cret");
  EXPECT_EQ(agent_->report(0).worker_id(), "w1");
  EXPECT_EQ(agent_->report(3).step().step(), 2U);
}

TEST_F(AgentLinkTest, SendsWhatIsNotDurableToTheNextAgent) {
  const auto link = Connect([](const v1::RankOrder&) {});
  for (uint32_t i = 0; i < 3; ++i) link->Report(Step(i));
  agent_->WaitForReports(4);
  v1::RankOrder order;
  order.mutable_ack()->set_number(1);
  agent_->Order(order);
  order.mutable_resend();
  agent_->Order(order);
  EXPECT_EQ(agent_->WaitForReports(6), (Numbers{0, 1, 2, 3, 2, 3}));
  agent_.reset();
  link->Report(Step(3));  // While nobody is there.
  agent_.emplace(socket_);
  EXPECT_EQ(agent_->WaitForReports(4), (Numbers{0, 2, 3, 4}));
}

TEST_F(AgentLinkTest, HandsOrdersOn) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint32_t> stops;
  const auto link = Connect([&](const v1::RankOrder& order) {
    const std::lock_guard lock(mutex);
    stops.push_back(order.job_epoch());
    changed.notify_all();
  });
  for (const uint32_t epoch : {4, 5}) {
    v1::RankOrder order;
    order.set_job_epoch(epoch);
    order.mutable_stop();
    agent_->Order(order);
  }
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::seconds(20), [&] { return stops.size() == 2; });
  EXPECT_EQ(stops, (std::vector<uint32_t>{4, 5}));
}

TEST_F(AgentLinkTest, ClosesWhileTheAgentIsAway) {
  agent_.reset();
  const auto link = Connect([](const v1::RankOrder&) {});
  link->Report(Step(0));
  link->Close();
}

TEST_F(AgentLinkTest, GivesUpWhenTheAgentRefusesIt) {
  agent_->Refuse("no such worker");
  const auto link = Connect([](const v1::RankOrder&) {});
  std::future<std::string> error = refused_.get_future();
  ASSERT_EQ(error.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(error.get(), "no such worker");
  link->Close();
  EXPECT_EQ(agent_->WaitForReports(1), Numbers{0});
}

class RendezvousStoreTest : public AgentLinkTest {
 protected:
  c10::intrusive_ptr<RendezvousStore> Open(uint32_t job_epoch) {
    return c10::make_intrusive<RendezvousStore>(OpenAgentChannel("unix:" + socket_), "j1", "w1",
                                                job_epoch);
  }

  // What a get of a key that never comes throws after `interrupt`.
  std::string GetUntil(const std::function<void(RendezvousStore&)>& interrupt) {
    const auto store = Open(3);
    std::string error;
    std::thread getter([&] {
      try {
        store->get("never");
      } catch (const c10::Error& thrown) {
        error = thrown.what_without_backtrace();
      }
    });
    agent_->WaitForWaiter();
    interrupt(*store);
    getter.join();
    return error;
  }
};

TEST_F(RendezvousStoreTest, SetsGetsAddsChecksDeletes) {
  const auto store = Open(3);
  store->set("a", std::vector<uint8_t>{1, 0, 255});
  EXPECT_EQ(store->get("a"), (std::vector<uint8_t>{1, 0, 255}));
  EXPECT_EQ(store->add("n", 5), 5);
  EXPECT_EQ(store->add("n", -2), 3);
  EXPECT_TRUE(store->check({"a", "n"}));
  EXPECT_FALSE(store->check({"a", "b"}));
  store->wait({"a", "n"});
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_FALSE(store->deleteKey("a"));
  EXPECT_THROW(store->wait({"a"}, std::chrono::milliseconds(30)), c10::Error);
}

TEST_F(RendezvousStoreTest, OneThreadWaitsForAnother) {
  const auto store = Open(3);
  std::thread setter([&] {
    agent_->WaitForWaiter();
    Open(3)->set("late", std::vector<uint8_t>{7});
  });
  EXPECT_EQ(store->get("late"), std::vector<uint8_t>{7});
  setter.join();
}

TEST_F(RendezvousStoreTest, StopsAtOnceWhenClosed) {
  EXPECT_EQ(GetUntil([](RendezvousStore& store) { store.Close(); }),
            "rendezvous of job_epoch 3 was stopped");
}

TEST_F(RendezvousStoreTest, AnOldEpochIsRefused) {
  const std::string error = GetUntil([this](RendezvousStore&) { agent_->SetDeadEpoch(3); });
  EXPECT_NE(error.find("current job_epoch is 9"), std::string::npos) << error;
  EXPECT_THROW(Open(3)->set("a", std::vector<uint8_t>{1}), c10::Error);
}

TEST_F(RendezvousStoreTest, OutlivesItsAgent) {
  const auto store = Open(3);
  std::vector<uint8_t> got;
  std::thread getter([&] { got = store->get("later"); });
  agent_->WaitForWaiter();
  agent_.reset();
  agent_.emplace(socket_);
  Open(3)->set("later", std::vector<uint8_t>{9});
  getter.join();
  EXPECT_EQ(got, std::vector<uint8_t>{9});
}

}  // namespace
}  // namespace tundish::rank
