#include "worker/agent/worker.h"

#include <chrono>

#include <gtest/gtest.h>

#include "worker/agent/store_relay.h"

namespace tundish::agent {
namespace {

v1::RankOrder Ack(uint64_t number) {
  v1::RankOrder order;
  order.mutable_ack()->set_number(number);
  return order;
}

v1::RankOrder Stop(uint32_t job_epoch) {
  v1::RankOrder order;
  order.set_job_epoch(job_epoch);
  order.mutable_stop();
  return order;
}

TEST(OrderBufferTest, KeepsTheLastAcknowledgementOnly) {
  OrderBuffer buffer;
  EXPECT_TRUE(buffer.Add(Ack(1)));
  EXPECT_TRUE(buffer.Add(Stop(1)));
  EXPECT_TRUE(buffer.Add(Ack(2)));
  const auto orders = buffer.Take();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_TRUE(orders[0].has_stop());
  EXPECT_EQ(orders[1].ack().number(), 2u);
  EXPECT_TRUE(buffer.empty());
}

TEST(OrderBufferTest, DropsTheOldestBeyondItsBound) {
  OrderBuffer buffer;
  for (uint32_t i = 0; i < OrderBuffer::kBound; ++i) EXPECT_TRUE(buffer.Add(Stop(i)));
  EXPECT_FALSE(buffer.Add(Stop(1000)));
  const auto orders = buffer.Take();
  ASSERT_EQ(orders.size(), OrderBuffer::kBound);
  EXPECT_EQ(orders.front().job_epoch(), 1u);
  EXPECT_EQ(orders.back().job_epoch(), 1000u);
}

TEST(ExitCauseTest, IsBounded) {
  struct Case {
    int code;
    int signal;
    bool adopted;
    const char* want;
  };
  for (const Case& c : {Case{0, 0, false, "finished"}, Case{0, 0, true, "unknown"},
                        Case{3, 0, false, "error"}, Case{0, 9, false, "killed_by_signal_9"}}) {
    v1::WorkerExited exited;
    exited.set_exit_code(c.code);
    exited.set_signal(c.signal);
    exited.set_adopted(c.adopted);
    EXPECT_EQ(ExitCause(exited), c.want);
  }
}

TEST(SecretsEqualTest, ComparesAll) {
  EXPECT_TRUE(SecretsEqual("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcd", "Abc"})
    EXPECT_FALSE(SecretsEqual("abc", other));
  EXPECT_FALSE(SecretsEqual("", "")) << "no secret is known";
}

TEST(StoreDeadlineTest, IsTheCallersOrWhatTheCallCanNeed) {
  using std::chrono::seconds;
  const auto now = std::chrono::system_clock::time_point(seconds(1000));
  const auto never = std::chrono::system_clock::time_point::max();
  v1::StoreRequest get;
  get.mutable_get()->set_timeout_ms(5000);
  EXPECT_EQ(StoreDeadline(now, now + seconds(1), get), now + seconds(1));
  EXPECT_EQ(StoreDeadline(now, never, get), now + seconds(65));
  get.mutable_get()->set_timeout_ms(4'000'000'000);
  EXPECT_EQ(StoreDeadline(now, never, get), now + seconds(660));
  v1::StoreRequest set;
  set.set_set("x");
  EXPECT_EQ(StoreDeadline(now, never, set), now + seconds(60));
}

}  // namespace
}  // namespace tundish::agent
