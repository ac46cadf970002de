#include "worker/agent/uplink_queue.h"

#include <string>

#include <gtest/gtest.h>

#include "worker/agent/backoff.h"

namespace tundish::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const UplinkQueue::TimePoint kStart{};

v1::AgentMessage Exit(const std::string& worker) {
  v1::AgentMessage message;
  message.mutable_worker_exited()->set_worker_id(worker);
  return message;
}

v1::RankReport Report(const std::string& worker, uint64_t number) {
  v1::RankReport report;
  report.set_worker_id(worker);
  report.set_number(number);
  return report;
}

/// "exit a", "reports a1 a2": what Next() gives until it gives nothing.
std::vector<std::string> Drain(UplinkQueue& queue, UplinkQueue::TimePoint now) {
  std::vector<std::string> texts;
  while (const auto message = queue.Next(now)) {
    std::string& text = texts.emplace_back();
    if (message->has_worker_exited()) {
      text = "exit " + message->worker_exited().worker_id();
    } else {
      text = "reports";
      for (const v1::RankReport& report : message->reports().reports()) {
        text += " " + report.worker_id() + std::to_string(report.number());
      }
    }
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(UplinkQueueTest, ReportsLeaveTogetherButNeverAfterALaterExit) {
  UplinkQueue queue(1000);
  EXPECT_TRUE(queue.AddReport(Report("a", 1)));
  EXPECT_TRUE(queue.AddReport(Report("b", 1)));
  queue.AddFact(Exit("a"), kStart);
  EXPECT_TRUE(queue.AddReport(Report("b", 2)));
  EXPECT_EQ(Drain(queue, kStart), (Texts{"reports a1 b1", "exit a", "reports b2"}));
  EXPECT_TRUE(queue.empty());
}

TEST(UplinkQueueTest, SaysHowLongAnExitWaited) {
  UplinkQueue queue(1000);
  queue.AddFact(Exit("a"), kStart);
  EXPECT_EQ(queue.Next(kStart + milliseconds(12))->worker_exited().observed_ms(), 12);
}

TEST(UplinkQueueTest, RefusesReportsBeyondItsBoundAndTakesThemAgainLater) {
  UplinkQueue queue(1);
  EXPECT_TRUE(queue.AddReport(Report("a", 1)));
  EXPECT_FALSE(queue.AddReport(Report("a", 2)));
  queue.AddFact(Exit("b"), kStart);  // A fact always has room.
  EXPECT_EQ(Drain(queue, kStart), (Texts{"reports a1", "exit b"}));
  EXPECT_TRUE(queue.AddReport(Report("a", 2)));
}

TEST(UplinkQueueTest, BoundsABatch) {
  UplinkQueue queue(64 << 20);
  v1::RankReport big = Report("a", 1);
  big.mutable_log()->set_text(std::string(UplinkQueue::kBatchBytes * 2 / 3, 'x'));
  for (uint64_t number = 1; number <= 3; ++number) {
    big.set_number(number);
    ASSERT_TRUE(queue.AddReport(big));
  }
  EXPECT_EQ(Drain(queue, kStart), (Texts{"reports a1 a2", "reports a3"}));
}

TEST(UplinkQueueTest, TellsFactsAgainUnlessTheirStreamLasted) {
  UplinkQueue queue(1000);
  queue.AddFact(Exit("old"), kStart);
  EXPECT_EQ(Drain(queue, kStart), (Texts{"exit old"}));
  EXPECT_TRUE(queue.TakeSettled(kStart + UplinkQueue::kSettled - milliseconds(1)).empty());
  const auto settled = queue.TakeSettled(kStart + UplinkQueue::kSettled);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].worker_exited().worker_id(), "old");

  queue.AddFact(Exit("a"), kStart);
  queue.AddFact(Exit("b"), kStart);
  EXPECT_EQ(Drain(queue, kStart + seconds(20)), (Texts{"exit a", "exit b"}));
  queue.AddFact(Exit("c"), kStart);
  EXPECT_TRUE(queue.AddReport(Report("a", 7)));
  queue.StreamEnded();
  EXPECT_EQ(Drain(queue, kStart + seconds(21)), (Texts{"exit a", "exit b", "exit c"}));
}

TEST(UplinkQueueTest, KnowsWhichExitsWereNeverSent) {
  UplinkQueue queue(1000);
  queue.AddFact(Exit("a"), kStart);
  EXPECT_EQ(queue.UntoldExits().size(), 1u);
  EXPECT_EQ(Drain(queue, kStart), (Texts{"exit a"}));
  queue.AddFact(Exit("b"), kStart);
  queue.StreamEnded();  // "a" is told again, but the coordinator may know it.
  const auto untold = queue.UntoldExits();
  ASSERT_EQ(untold.size(), 1u);
  EXPECT_EQ(untold[0].worker_id(), "b");
}

TEST(BackoffTest, DoublesUpToTwoSecondsWithJitter) {
  struct Case {
    int failures;
    double random;
    int want_ms;
  };
  for (const Case& c : {Case{0, 0.0, 25}, Case{0, 0.999, 49}, Case{3, 0.5, 300}, Case{6, 0.0, 1000},
                        Case{1'000'000, 0.0, 1000}}) {
    EXPECT_EQ(Backoff(c.failures, c.random).count(), c.want_ms) << c.failures << " " << c.random;
  }
}

}  // namespace
}  // namespace tundish::agent
