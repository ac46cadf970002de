#include "server/scheduler/scheduler.h"

#include <chrono>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::scheduler {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

const Time kNow{24h * 20000};

NodeView Node(const std::string& name, int count, int busy = 0, const std::string& kind = "cpu") {
  NodeView node{.node = name};
  for (int i = 0; i < count; ++i) {
    node.devices.push_back({fmt::format("{}:{}", kind, i), kind, {}, i >= busy});
  }
  return node;
}

NodeView Drained(NodeView node) {
  node.drained = true;
  return node;
}

NodeView Away(NodeView node) {
  node.ready = false;
  return node;
}

NodeView Windowed(NodeView node, seconds from, seconds until, bool evict = false) {
  node.window = {kNow + from, kNow + until};
  node.evict = evict;
  return node;
}

PendingJob Job(const std::string& id, int ranks, int second = 0, int priority = 0,
               const std::string& kind = "cpu") {
  return {.job_id = id,
          .tenant = "default",
          .priority = priority,
          .submitted = kNow - 1h + seconds(second),
          .data = ranks,
          .device_kind = kind,
          .waiting_since = kNow - 1h + seconds(second)};
}

PendingJob Of(const std::string& tenant, PendingJob job) {
  job.tenant = tenant;
  return job;
}

PendingJob Limited(PendingJob job, seconds limit) {
  job.max_run = limit;
  return job;
}

RunningJob Running(const std::string& id, const std::string& node, int devices, int priority = 0,
                   seconds ends_in = 0s) {
  return {.job_id = id,
          .tenant = "default",
          .priority = priority,
          .device_kind = "cpu",
          .started = kNow - 1h,
          .ends_by = ends_in.count() > 0 ? kNow + ends_in : Time::max(),
          .devices = {{node, devices}}};
}

struct World {
  std::vector<PendingJob> pending;
  std::vector<NodeView> nodes;
  std::vector<RunningJob> running;
  std::map<std::string, Share> shares;
};

void Fill(Scheduler& scheduler, const World& world) {
  for (const NodeView& node : world.nodes) scheduler.PutNode(node, kNow);
  for (const RunningJob& job : world.running) scheduler.PutRunning(job);
  for (const PendingJob& job : world.pending) scheduler.PutPending(job);
  for (const auto& [tenant, share] : world.shares) scheduler.SetShare(tenant, share);
}

std::string Show(Scheduler& scheduler, const World& world, Time now = kNow) {
  const Decision decision = scheduler.Decide(now);
  std::string text;
  for (const Start& start : decision.starts) {
    text += fmt::format("start {} ({}){}; ", start.job_id, start.placement.places.size(),
                        start.past.empty() ? "" : " past " + start.past);
  }
  for (const Yield& yield : decision.yields) {
    text += fmt::format("{} yields to {}; ", yield.job_id, yield.beneficiary);
  }
  for (const std::string& job : decision.expired) text += fmt::format("{} expired; ", job);
  for (const PendingJob& job : world.pending) {
    if (!scheduler.pending(job.job_id)) continue;
    text +=
        fmt::format("{} {}; ", job.job_id, WaitCodeName(scheduler.Explain(job.job_id, now).code));
  }
  return text;
}

TEST(SchedulerTest, StartsAndWaits) {
  struct Case {
    const char* name;
    World world;
    const char* want;
  };
  const Case cases[] = {
      {"nothing to do", {{}, {Node("a", 4)}}, ""},
      {"fits", {{Job("x", 4)}, {Node("a", 4)}}, "start x (4); "},
      {"two full-size gangs: one runs, one waits",
       {{Job("y", 4, 2), Job("x", 4, 1)}, {Node("a", 4)}},
       "start x (4); y devices_busy; "},
      {"all or nothing over hosts",
       {{Job("x", 5)}, {Node("a", 4, 1), Node("b", 2, 1)}},
       "x devices_busy; "},
      {"gang over two hosts", {{Job("x", 5)}, {Node("a", 4), Node("b", 2)}}, "start x (5); "},
      {"priority before age",
       {{Job("old", 4, 1, 0), Job("new", 4, 2, 5)}, {Node("a", 4)}},
       "start new (4); old devices_busy; "},
      {"id breaks ties",
       {{Job("b", 4), Job("a", 4)}, {Node("n", 4)}},
       "start a (4); b devices_busy; "},
      {"nobody overtakes a head that may start any moment",
       {{Job("head", 4, 1), Limited(Job("small", 1, 2), 1s)},
        {Node("a", 4, 2)},
        {Running("r", "a", 2)}},
       "head devices_busy; small behind_job; "},
      {"back-filled: it ends before the head's devices are due",
       {{Job("head", 4, 1), Limited(Job("small", 1, 2), 900s)},
        {Node("a", 4, 2)},
        {Running("r", "a", 2, 0, 1000s)}},
       "start small (1) past head; head devices_busy; "},
      {"not back-filled: it might not",
       {{Job("head", 4, 1), Limited(Job("small", 1, 2), 1001s)},
        {Node("a", 4, 2)},
        {Running("r", "a", 2, 0, 1000s)}},
       "head devices_busy; small behind_job; "},
      {"back-filled without a limit on what the head leaves over",
       {{Job("head", 3, 1), Job("one", 1, 2), Job("two", 1, 3)},
        {Node("a", 4, 2)},
        {Running("r", "a", 2, 0, 1000s)}},
       "start one (1) past head; head devices_busy; two behind_job; "},
      {"devices whose processes are ending are the head's",
       {{Job("head", 4, 1), Limited(Job("small", 1, 2), 900s)}, {Node("a", 4, 2)}},
       "head devices_busy; small behind_job; "},
      {"another kind is not held up",
       {{Job("head", 4, 1), Job("gpu", 2, 2, 0, "cuda")},
        {Node("a", 4, 2), Node("g", 2, 0, "cuda")}},
       "start gpu (2); head devices_busy; "},
      {"the impossible holds up nobody",
       {{Job("huge", 9, 1), Job("small", 4, 2)}, {Node("a", 4)}},
       "start small (4); huge impossible_now; "},
      {"drained and unreachable nodes give nothing",
       {{Job("x", 1)}, {Drained(Node("a", 4)), Away(Node("b", 4))}},
       "x no_node; "},
      {"no such kind", {{Job("x", 1, 0, 0, "cuda")}, {Node("a", 4)}}, "x no_node; "},
      {"the tenant that holds least comes first",
       {{Of("x", Job("a", 1, 1)), Of("x", Job("b", 1, 2)), Of("y", Job("c", 1, 3))},
        {Node("n", 2)}},
       "start a (1); start c (1); b devices_busy; "},
      {"for its weight",
       {{Of("x", Job("a", 2, 1)), Of("x", Job("b", 2, 2)), Of("y", Job("c", 1, 3)),
         Of("y", Job("d", 4, 4))},
        {Node("n", 7)},
        {},
        {{"x", {.weight = 4}}}},
       "start a (2); start c (1); start b (2); d devices_busy; "},
      {"a quota of devices holds up its tenant only",
       {{Of("x", Job("a", 2, 1)), Of("x", Job("b", 2, 2)), Of("x", Job("b2", 1, 3)),
         Of("y", Job("c", 2, 4))},
        {Node("n", 8)},
        {},
        {{"x", {.max_devices = 3}}}},
       "start a (2); start c (2); b quota; b2 devices_busy; "},
      {"a quota of jobs",
       {{Job("a", 1, 1), Job("b", 1, 2)}, {Node("n", 8)}, {}, {{"default", {.max_jobs = 1}}}},
       "start a (1); b quota; "},
      {"more than its quota will ever be",
       {{Job("a", 5, 1), Job("b", 1, 2)}, {Node("n", 8)}, {}, {{"default", {.max_devices = 4}}}},
       "start b (1); a quota; "},
      {"no job is back-filled into the quota its head needs",
       {{Of("x", Job("head", 3, 1)), Of("x", Job("one", 1, 2)), Of("y", Job("two", 1, 3))},
        {Node("a", 4, 2)},
        {Running("r", "a", 2, 0, 1000s)},
        {{"x", {.max_devices = 3}}}},
       "start two (1) past head; head devices_busy; one behind_job; "},
      {"before a window only what ends in time",
       {{Limited(Job("short", 1, 1), 900s), Limited(Job("long", 1, 2), 3600s), Job("any", 1, 3)},
        {Windowed(Node("a", 4), 1000s, 2000s)}},
       "start short (1); long maintenance_window; any maintenance_window; "},
      {"in the window nothing",
       {{Limited(Job("short", 1, 1), 1s)}, {Windowed(Node("a", 4), -10s, 2000s)}},
       "short no_node; "},
      {"after it everything",
       {{Job("any", 1, 1)}, {Windowed(Node("a", 4), -100s, -1s)}},
       "start any (1); "},
      {"runs end at their limit", {{}, {Node("a", 4, 2)}, {Running("r", "a", 2, 0, 1s)}}, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Scheduler scheduler;
    Fill(scheduler, c.world);
    EXPECT_EQ(Show(scheduler, c.world), c.want);
  }
}

TEST(SchedulerTest, Preempts) {
  struct Case {
    const char* name;
    World world;
    const char* want;
  };
  RunningJob young = Running("young", "a", 2);
  young.started = kNow - 10s;
  RunningJob firm = Running("firm", "a", 2);
  firm.preemptible = false;
  RunningJob often = Running("often", "a", 2);
  often.preemptions = 3;
  RunningJob leaving = Running("leaving", "a", 2);
  leaving.yielding = true;
  RunningJob newer = Running("newer", "a", 2);
  newer.started = kNow - 30min;
  const Case cases[] = {
      {"a less important run yields",
       {{Job("head", 4, 1, 5)}, {Node("a", 4, 4)}, {Running("r", "a", 4)}},
       "r yields to head; head devices_busy; "},
      {"not one of the same priority",
       {{Job("head", 4, 1, 5)}, {Node("a", 4, 4)}, {Running("r", "a", 4, 5)}},
       "head devices_busy; "},
      {"not if all would not be enough",
       {{Job("head", 4, 1, 5)}, {Node("a", 4, 4)}, {Running("r", "a", 2), Running("s", "a", 2, 5)}},
       "head devices_busy; "},
      {"the least important first, then the youngest",
       {{Job("head", 2, 1, 5)},
        {Node("a", 6, 6)},
        {Running("r", "a", 2), newer, Running("s", "a", 2, 1)}},
       "newer yields to head; head devices_busy; "},
      {"nobody in vain: one large run is enough",
       {{Job("head", 4, 1, 5)},
        {Node("a", 6, 6)},
        {Running("small", "a", 2, 0), Running("large", "a", 4, 1)}},
       "large yields to head; head devices_busy; "},
      {"not a young run",
       {{Job("head", 2, 1, 5)}, {Node("a", 2, 2)}, {young}},
       "head devices_busy; "},
      {"not one that said no",
       {{Job("head", 2, 1, 5)}, {Node("a", 2, 2)}, {firm}},
       "head devices_busy; "},
      {"not one that has yielded often",
       {{Job("head", 2, 1, 5)}, {Node("a", 2, 2)}, {often}},
       "head devices_busy; "},
      {"what is given back already counts",
       {{Job("head", 2, 1, 5)}, {Node("a", 4, 4)}, {leaving, Running("r", "a", 2)}},
       "head devices_busy; "},
      {"nobody where the devices come by themselves in a moment",
       {{Job("head", 2, 1, 5)}, {Node("a", 2, 2)}, {Running("r", "a", 2, 0, 20s)}},
       "head devices_busy; "},
      {"a drained node sends its runs away if asked to",
       {{},
        {[] {
          NodeView node = Drained(Node("a", 4, 4));
          node.evict = true;
          return node;
        }()},
        {Running("r", "a", 4)}},
       "r yields to a; "},
      {"so does a window",
       {{}, {Windowed(Node("a", 4, 4), -1s, 100s, true)}, {Running("r", "a", 4)}},
       "r yields to a; "},
      {"or leaves them", {{}, {Windowed(Node("a", 4, 4), -1s, 100s)}, {Running("r", "a", 4)}}, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Scheduler scheduler;
    Fill(scheduler, c.world);
    EXPECT_EQ(Show(scheduler, c.world), c.want);
    // Asked once is enough.
    EXPECT_THAT(Show(scheduler, c.world), testing::Not(HasSubstr("yields")));
  }
}

TEST(SchedulerTest, TheHeadStaysTheHeadOfItsPriority) {
  Scheduler scheduler;
  const World world{{Of("x", Job("head", 4, 1))}, {Node("a", 4, 3)}, {Running("r", "a", 3)}};
  Fill(scheduler, world);
  scheduler.Decide(kNow);
  EXPECT_EQ(scheduler.HeadOf("cpu"), "head");
  // Its tenant comes to hold something, another holds nothing: fair share would turn them round.
  RunningJob other = Running("o", "b", 1);
  other.tenant = "x";
  scheduler.PutNode(Node("b", 1, 1), kNow);
  scheduler.PutRunning(other);
  scheduler.PutPending(Of("y", Job("rival", 4, 0)));
  scheduler.Decide(kNow);
  EXPECT_EQ(scheduler.HeadOf("cpu"), "head");
  scheduler.PutPending(Of("y", Job("urgent", 4, 9, 1)));
  scheduler.Decide(kNow);
  EXPECT_EQ(scheduler.HeadOf("cpu"), "urgent");
}

TEST(SchedulerTest, OverdueJobsComeFirst) {
  Scheduler scheduler({.overdue_after = 7200s});
  const World world{{Job("old", 4, 0, -10), Job("new", 4, 3000, 10)}, {Node("a", 4)}};
  Fill(scheduler, world);
  // Waiting since an hour before kNow.
  EXPECT_EQ(Show(scheduler, world, kNow + 1h), "start old (4); new devices_busy; ");
}

TEST(SchedulerTest, SaysWhenToDecideAgain) {
  Scheduler scheduler({.overdue_after = 24h});
  scheduler.PutNode(Windowed(Node("a", 4, 2), 500s, 900s), kNow);
  EXPECT_EQ(scheduler.Decide(kNow).next, kNow + 500s);
  EXPECT_EQ(scheduler.Decide(kNow + 500s).next, kNow + 900s);
  EXPECT_EQ(scheduler.Decide(kNow + 900s).next, Time::max());
  scheduler.PutRunning(Running("r", "a", 2, 0, 950s));
  EXPECT_EQ(scheduler.Decide(kNow + 901s).next, kNow + 950s);
  EXPECT_EQ(scheduler.Decide(kNow + 950s).expired, std::vector<std::string>{"r"});
  scheduler.PutPending(Job("x", 4));
  EXPECT_EQ(scheduler.Decide(kNow + 951s).next, kNow - 1h + 24h);
}

TEST(SchedulerTest, SaysWhyInASentence) {
  struct Case {
    World world;
    const char* job;
    const char* reason;
  };
  const Case cases[] = {
      {{{Job("x", 8)}, {Node("a", 4)}},
       "x",
       "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has"},
      {{{Job("x", 8)}, {Node("a", 4), Drained(Node("b", 4)), Away(Node("c", 2))}},
       "x",
       "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has; 4 more on drained "
       "nodes; 2 more on nodes that are unreachable"},
      {{{Job("x", 4)}, {Node("a", 4, 3)}},
       "x",
       "needs 4 cpu devices, 1 is free of 4 in all: other jobs hold the rest"},
      {{{Job("x", 4)}, {Node("a", 4, 3)}, {Running("r", "a", 2, 0, 100s), Running("s", "a", 1)}},
       "x",
       "needs 4 cpu devices, 1 is free of 4 in all: job r holds 2 until 2024-10-04 00:01:40 UTC at "
       "the latest, job s holds 1"},
      {{{Job("x", 4), Job("y", 1, 1)}, {Node("a", 4, 3)}},
       "y",
       "needs 1 cpu device, 1 is free of 4 in all, and job x comes first"},
      {{{Job("x", 1, 0, 0, "cuda")}, {Node("a", 4)}},
       "x",
       "needs 1 cuda device, no ready node offers any"},
      {{{Job("x", 2)}, {Node("a", 4, 2)}, {Running("r", "a", 2)}, {{"default", {1, 3, 0}}}},
       "x",
       "needs 2 cpu devices, and tenant default holds 2 of 3 devices in 1 of any jobs"},
  };
  for (const Case& c : cases) {
    Scheduler scheduler;
    Fill(scheduler, c.world);
    scheduler.Decide(kNow);
    EXPECT_EQ(scheduler.Explain(c.job, kNow).reason, c.reason);
  }
}

TEST(SchedulerTest, EstimatesStartsFromLimits) {
  Scheduler scheduler({.release_grace = 0s});
  const World world{
      {Limited(Job("a", 4, 1), 100s), Limited(Job("b", 4, 2), 50s), Job("c", 2, 3), Job("d", 4, 4)},
      {Node("n", 4, 4)},
      {Running("r", "n", 4, 0, 1000s)}};
  Fill(scheduler, world);
  scheduler.Decide(kNow);
  const auto wait = [&](const char* job) { return scheduler.Explain(job, kNow); };
  EXPECT_EQ(wait("a").expected, kNow + 1000s);
  EXPECT_EQ(wait("b").expected, kNow + 1100s);
  EXPECT_EQ(wait("c").expected, kNow + 1150s);
  EXPECT_EQ(wait("c").position, 3);
  EXPECT_FALSE(wait("d").expected.has_value()) << "c has no limit";
  EXPECT_EQ(scheduler.Reservation(Job("a", 4), kNow), kNow + 1000s);
}

TEST(SchedulerTest, KeepsGroupsInsideTheirLinkDomain) {
  NodeView node = Node("a", 8);
  for (int i = 0; i < 8; ++i) node.devices[i].link_domains = {fmt::format("switch:{}", i / 2)};
  node.devices[1].free = false;
  PendingJob job = Job("x", 2);
  job.tensor = 2;
  Scheduler scheduler;
  Fill(scheduler, {{job}, {node}});
  const Decision decision = scheduler.Decide(kNow);
  ASSERT_EQ(decision.starts.size(), 1u);
  const partitioner::Placement& placement = decision.starts[0].placement;
  EXPECT_EQ(placement.places[0].device, "cpu:2");
  EXPECT_EQ(placement.places[1].device, "cpu:3");
  EXPECT_EQ(placement.reason, "2 groups of 2 on a, each inside one switch");
}

TEST(SchedulerTest, ReturnedCapacityReachesTheWaitingJob) {
  Scheduler scheduler;
  const World world{{Job("y", 4)}, {Node("a", 4, 4)}, {Running("x", "a", 4)}};
  Fill(scheduler, world);
  EXPECT_EQ(Show(scheduler, world), "y devices_busy; ");
  scheduler.Remove("x");
  EXPECT_EQ(Show(scheduler, world), "y devices_busy; ") << "its processes are still there";
  scheduler.PutNode(Node("a", 4), kNow);
  EXPECT_EQ(Show(scheduler, world), "start y (4); ");
  EXPECT_EQ(scheduler.HeldBy("default").devices, 4);
}

}  // namespace
}  // namespace tundish::scheduler
