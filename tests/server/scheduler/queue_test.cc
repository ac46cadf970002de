#include "server/scheduler/queue.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace tundish::scheduler {
namespace {

PendingJob Job(const std::string& id, const std::string& tenant, int second, int priority = 0) {
  const Time time{seconds(second)};
  return {.job_id = id,
          .tenant = tenant,
          .priority = priority,
          .submitted = time,
          .device_kind = "cpu",
          .waiting_since = time};
}

std::string Order(const Queue& queue, std::map<std::string, double> loads = {},
                  const std::string& first = "") {
  std::string order;
  queue.ForEach(
      first, [&](const std::string& tenant) { return loads[tenant]; },
      [&](const PendingJob& job) {
        order += job.job_id;
        loads[job.tenant] += 1;
        return Next::kContinue;
      });
  return order;
}

TEST(QueueTest, PriorityThenFairShareThenAge) {
  Queue queue;
  queue.Put(Job("a", "x", 1));
  queue.Put(Job("b", "x", 2));
  queue.Put(Job("c", "x", 3));
  queue.Put(Job("d", "y", 4));
  queue.Put(Job("e", "y", 5));
  queue.Put(Job("f", "z", 6, 5));
  EXPECT_EQ(Order(queue), "fadbec");
  EXPECT_EQ(Order(queue, {{"x", 10}}), "fdeabc");
  EXPECT_EQ(Order(queue, {{"x", 10}}, "c"), "fcdeab") << "the head keeps its place in its level";
  queue.Put(Job("f", "z", 6, 0));
  EXPECT_EQ(Order(queue), "adfbec");
  queue.Remove("a");
  queue.Remove("a");
  EXPECT_EQ(Order(queue), "bdfce");
  EXPECT_EQ(queue.size(), 5u);
}

TEST(QueueTest, OverdueJobsComeFirstByAge) {
  Queue queue;
  queue.Put(Job("a", "x", 1, -5));
  queue.Put(Job("b", "y", 2, 3));
  queue.Put(Job("c", "x", 3, 9));
  EXPECT_EQ(Order(queue), "cba");
  EXPECT_EQ(queue.oldest(), Time(seconds(1)));
  queue.Age(Time(seconds(2)));
  EXPECT_EQ(Order(queue), "abc");
  EXPECT_TRUE(queue.overdue("a"));
  EXPECT_FALSE(queue.overdue("c"));
  // The same wait stays overdue, a new one does not.
  queue.Put(Job("a", "x", 1, -5));
  EXPECT_TRUE(queue.overdue("a"));
  PendingJob again = Job("a", "x", 1, -5);
  again.waiting_since = Time(seconds(9));
  queue.Put(again);
  EXPECT_EQ(Order(queue), "bca");
  queue.Remove("b");
  queue.Age(Time(seconds(100)));
  EXPECT_EQ(Order(queue), "ac") << "overdue ones by age";
  EXPECT_EQ(queue.oldest(), Time::max());
}

TEST(QueueTest, TheVisitorMayPassOverATenantOrStop) {
  Queue queue;
  for (int i = 0; i < 4; ++i) {
    queue.Put(Job(std::string(1, static_cast<char>('a' + i)), i % 2 == 0 ? "x" : "y", i));
    queue.Put(Job(std::string(1, static_cast<char>('e' + i)), i % 2 == 0 ? "x" : "y", i, -1));
  }
  std::string order;
  queue.ForEach(
      "", [](const std::string&) { return 0.0; },
      [&](const PendingJob& job) {
        order += job.job_id;
        if (job.job_id == "a") return Next::kSkipTenant;
        return job.job_id == "f" ? Next::kStop : Next::kContinue;
      });
  EXPECT_EQ(order, "abdf");
}

}  // namespace
}  // namespace tundish::scheduler
