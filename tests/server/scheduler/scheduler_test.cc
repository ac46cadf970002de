#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace tundish::scheduler {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

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

PendingJob Job(const std::string& id, int ranks, int second = 0, int priority = 0,
               const std::string& kind = "cpu") {
  return {id, "default", priority, system_clock::time_point(seconds(second)), 1, ranks, kind};
}

std::string Show(const Decision& decision) {
  std::string text;
  for (const Start& start : decision.starts) {
    text += fmt::format("start {} ({}); ", start.job_id, start.placement.places.size());
  }
  for (const Waiting& wait : decision.waiting) {
    text += fmt::format("{} {}; ", wait.job_id, WaitCodeName(wait.code));
  }
  return text;
}

TEST(DecideTest, StartsAndWaits) {
  struct Case {
    const char* name;
    std::vector<PendingJob> pending;
    std::vector<NodeView> nodes;
    const char* want;
  };
  const Case cases[] = {
      {"nothing to do", {}, {Node("a", 4)}, ""},
      {"fits", {Job("x", 4)}, {Node("a", 4)}, "start x (4); "},
      {"two full-size gangs: one runs, one waits",
       {Job("y", 4, 2), Job("x", 4, 1)},
       {Node("a", 4)},
       "start x (4); y devices_busy; "},
      {"all or nothing over hosts",
       {Job("x", 5)},
       {Node("a", 4, 1), Node("b", 2, 1)},
       "x devices_busy; "},
      {"gang over two hosts", {Job("x", 5)}, {Node("a", 4), Node("b", 2)}, "start x (5); "},
      {"priority before age",
       {Job("old", 4, 1, 0), Job("new", 4, 2, 5)},
       {Node("a", 4)},
       "start new (4); old devices_busy; "},
      {"id breaks ties",
       {Job("b", 4), Job("a", 4)},
       {Node("n", 4)},
       "start a (4); b devices_busy; "},
      {"nobody overtakes the head",
       {Job("head", 4, 1), Job("small", 1, 2)},
       {Node("a", 4, 2)},
       "head devices_busy; small behind_job; "},
      {"another kind is not held up",
       {Job("head", 4, 1), Job("gpu", 2, 2, 0, "cuda")},
       {Node("a", 4, 2), Node("g", 2, 0, "cuda")},
       "start gpu (2); head devices_busy; "},
      {"the impossible holds up nobody",
       {Job("huge", 9, 1), Job("small", 4, 2)},
       {Node("a", 4)},
       "start small (4); huge impossible_now; "},
      {"drained and unreachable nodes give nothing",
       {Job("x", 1)},
       {Drained(Node("a", 4)), Away(Node("b", 4))},
       "x no_node; "},
      {"no such kind", {Job("x", 1, 0, 0, "cuda")}, {Node("a", 4)}, "x no_node; "},
      {"bad degrees wait alone",
       {Job("x", 0), Job("y", 1)},
       {Node("a", 4)},
       "start y (1); x impossible_now; "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Show(Decide({.pending = c.pending, .nodes = c.nodes})), c.want);
  }
}

TEST(DecideTest, SaysWhyInASentence) {
  struct Case {
    std::vector<PendingJob> pending;
    std::vector<NodeView> nodes;
    const char* reason;
  };
  const Case cases[] = {
      {{Job("x", 8)},
       {Node("a", 4)},
       "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has"},
      {{Job("x", 8)},
       {Node("a", 4), Drained(Node("b", 4)), Away(Node("c", 2))},
       "needs 8 cpu devices, 4 are free of 4 in all: more than the cluster has; 4 more on drained "
       "nodes; 2 more on nodes that are unreachable"},
      {{Job("x", 4)},
       {Node("a", 4, 3)},
       "needs 4 cpu devices, 1 is free of 4 in all: other jobs hold the rest"},
      {{Job("x", 4), Job("y", 1, 1)},
       {Node("a", 4, 3)},
       "needs 1 cpu device, 1 is free of 4 in all, and job x comes first"},
      {{Job("x", 1, 0, 0, "cuda")},
       {Node("a", 4)},
       "needs 1 cuda device, no ready node offers any"},
  };
  for (const Case& c : cases) {
    const Decision decision = Decide({.pending = c.pending, .nodes = c.nodes});
    ASSERT_FALSE(decision.waiting.empty());
    EXPECT_EQ(decision.waiting.back().reason, c.reason);
  }
}

TEST(DecideTest, KeepsGroupsInsideTheirLinkDomain) {
  NodeView node = Node("a", 8);
  for (int i = 0; i < 8; ++i) node.devices[i].link_domains = {fmt::format("switch:{}", i / 2)};
  node.devices[1].free = false;
  PendingJob job = Job("x", 2);
  job.tensor = 2;
  const Decision decision = Decide({.pending = {job}, .nodes = {node}});
  ASSERT_EQ(decision.starts.size(), 1u);
  const partitioner::Placement& placement = decision.starts[0].placement;
  EXPECT_EQ(placement.places[0].device, "cpu:2");
  EXPECT_EQ(placement.places[1].device, "cpu:3");
  EXPECT_EQ(placement.reason, "2 groups of 2 on a, each inside one switch");
}

/// Random jobs come and go; every decision is checked and carried out.
TEST(DecideTest, InvariantsHoldOverRandomHistories) {
  std::mt19937 random(3);
  for (int history = 0; history < 30; ++history) {
    std::vector<NodeView> nodes;
    for (int i = 0; i < 4; ++i) {
      nodes.push_back(Node(fmt::format("n{}", i), 1 + random() % 8, 0, i == 3 ? "cuda" : "cpu"));
    }
    std::vector<PendingJob> pending;
    std::map<std::string, std::vector<partitioner::Place>> running;
    const auto device = [&](const partitioner::Place& place) -> NodeDevice& {
      const auto node = std::ranges::find(nodes, place.node, &NodeView::node);
      return *std::ranges::find(node->devices, place.device, &NodeDevice::name);
    };
    for (int second = 0; second < 120; ++second) {
      if (random() % 2 == 0) {
        pending.push_back(Job(fmt::format("j{:03}", second), 1 + random() % 12, second,
                              random() % 3, random() % 4 == 0 ? "cuda" : "cpu"));
      }
      if (!running.empty() && random() % 3 == 0) {
        for (const auto& place : running.begin()->second) device(place).free = true;
        running.erase(running.begin());
      }
      if (random() % 10 == 0) nodes[random() % 4].drained ^= true;

      const Decision decision = Decide({.pending = pending, .nodes = nodes});
      ASSERT_EQ(decision.starts.size() + decision.waiting.size(), pending.size());
      for (const Start& start : decision.starts) {
        const auto job = std::ranges::find(pending, start.job_id, &PendingJob::job_id);
        ASSERT_EQ(std::ssize(start.placement.places), job->tensor * job->data) << "partial gang";
        for (const auto& place : start.placement.places) {
          NodeDevice& taken = device(place);
          ASSERT_TRUE(taken.free) << "device given twice";
          ASSERT_EQ(taken.kind, job->device_kind);
          ASSERT_FALSE(std::ranges::find(nodes, place.node, &NodeView::node)->drained);
          taken.free = false;
        }
      }
      // No job starts past a more important or older one that waits for busy devices of its kind.
      for (const Waiting& wait : decision.waiting) {
        if (wait.code != WaitCode::kDevicesBusy) continue;
        const auto head = std::ranges::find(pending, wait.job_id, &PendingJob::job_id);
        for (const Start& start : decision.starts) {
          const auto job = std::ranges::find(pending, start.job_id, &PendingJob::job_id);
          if (job->device_kind != head->device_kind) continue;
          ASSERT_TRUE(job->priority > head->priority ||
                      (job->priority == head->priority && job->submitted < head->submitted));
        }
      }
      for (const Start& start : decision.starts) {
        running[start.job_id] = start.placement.places;
        std::erase_if(pending, [&](const PendingJob& job) { return job.job_id == start.job_id; });
      }
    }
  }
}

TEST(DecideTest, ReturnedCapacityReachesTheWaitingJob) {
  const std::vector<PendingJob> pending = {Job("y", 4)};
  EXPECT_EQ(Show(Decide({.pending = pending, .nodes = {Node("a", 4, 4)}})), "y devices_busy; ");
  EXPECT_EQ(Show(Decide({.pending = pending, .nodes = {Node("a", 4, 0)}})), "start y (4); ");
}

}  // namespace
}  // namespace tundish::scheduler
