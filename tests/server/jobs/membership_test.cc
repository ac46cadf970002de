// Agents that come, go, are too old, or speak for a time that is over.
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/version_skew.h"
#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using MembershipTest = RecoveryTest;

/// An agent's stream that only remembers.
class TestLink : public AgentLink {
 public:
  bool Send(v1::CoordinatorMessage message) override {
    if (ended) return false;
    sent.push_back(std::move(message));
    return true;
  }
  void End(const absl::Status& status) override { ended = status; }

  std::vector<v1::CoordinatorMessage> sent;
  std::optional<absl::Status> ended;
};

v1::AgentMessage Registration(const std::string& node, const std::string& incarnation) {
  v1::AgentMessage message;
  message.set_node(node);
  message.set_incarnation(incarnation);
  message.mutable_register_()->set_version("0.1.0");
  v1::Device& device = *message.mutable_register_()->add_devices();
  device.set_name("cpu:0");
  device.set_kind("cpu");
  return message;
}

TEST(VersionSkewTest, OneMinorVersionOlderWorks) {
  const struct {
    const char* own;
    const char* agent;
    StatusCode want;
    const char* says;
  } cases[] = {
      {"3.5.2", "3.5.2", StatusCode::kOk, ""},
      {"3.5.2", "3.5.9", StatusCode::kOk, ""},
      {"3.5.2", "3.4.0", StatusCode::kOk, ""},
      {"3.5.2", "3.3.9", StatusCode::kFailedPrecondition, "upgrade tundish-agent"},
      {"3.5.2", "3.6.0", StatusCode::kFailedPrecondition, "upgrade tundishd"},
      {"3.0.0", "2.9.0", StatusCode::kFailedPrecondition, "upgrade tundish-agent"},
      {"3.5.2", "4.0.0", StatusCode::kFailedPrecondition, "upgrade tundishd"},
      {"3.5.2", "", StatusCode::kInvalidArgument, "MAJOR.MINOR.PATCH"},
      {"3.5.2", "3.5", StatusCode::kInvalidArgument, "MAJOR.MINOR.PATCH"},
      {"3.5.2", "3.5.2-rc1", StatusCode::kInvalidArgument, "MAJOR.MINOR.PATCH"},
      {"3.5.2", "3.99999999999.0", StatusCode::kInvalidArgument, "MAJOR.MINOR.PATCH"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.agent);
    const absl::Status status = CheckVersionSkew(c.own, c.agent);
    EXPECT_EQ(status.code(), c.want) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.own));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.agent));
  }
}

TEST_F(MembershipTest, AnIncompatibleAgentIsRefusedAndChangesNothing) {
  auto link = std::make_shared<TestLink>();
  v1::AgentMessage message = Registration("host-a", "I1");
  message.mutable_register_()->set_version("9.0.0");
  core_->OnAgentMessage(link, message);
  ASSERT_TRUE(link->ended.has_value());
  EXPECT_EQ(link->ended->code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(link->ended->message()), HasSubstr("9.0.0"));
  EXPECT_THAT(std::string(link->ended->message()), HasSubstr("0.1.0"));
  EXPECT_TRUE(core_->ListNodes().nodes().empty());
}

/// Every field of a oneof has to have a rule in `rules`.
template <class Rules>
void ExpectComplete(const google::protobuf::Descriptor* message, const char* oneof,
                    const Rules& rules) {
  const auto* fields = message->FindOneofByName(oneof);
  for (int i = 0; i < fields->field_count(); ++i) {
    EXPECT_TRUE(rules.contains(fields->field(i)->name()))
        << message->name() << "." << fields->field(i)->name()
        << " is new: say here what becomes of a stale one";
  }
  EXPECT_EQ(static_cast<int>(rules.size()), fields->field_count());
}

/// An empty body of this name.
template <class Message>
void SetBody(Message& message, const std::string& name) {
  message.GetReflection()->MutableMessage(&message, Message::descriptor()->FindFieldByName(name));
}

TEST_F(MembershipTest, AStaleIncarnationIsRefusedWhateverItSays) {
  enum Rule { kTakesOver, kAborted };
  const std::map<std::string, Rule> rules = {
      {"register", kTakesOver}, {"heartbeat", kAborted},   {"worker_exited", kAborted},
      {"reports", kAborted},    {"task_result", kAborted}, {"start_failed", kAborted},
      {"file_chunk", kAborted}, {"link_report", kAborted},
  };
  ExpectComplete(v1::AgentMessage::descriptor(), "body", rules);
  for (const auto& [name, rule] : rules) {
    SCOPED_TRACE(name);
    auto old_link = std::make_shared<TestLink>();
    auto new_link = std::make_shared<TestLink>();
    core_->OnAgentMessage(old_link, Registration("host-x", "OLD"));
    core_->OnAgentMessage(new_link, Registration("host-x", "NEW"));
    ASSERT_TRUE(old_link->ended.has_value());
    EXPECT_EQ(old_link->ended->code(), StatusCode::kAborted);
    EXPECT_EQ(core_->link_count(), 1u);
    // On its own stream, and on the new one under the old name of the incarnation.
    for (const auto& link : {old_link, new_link}) {
      v1::AgentMessage message = Registration("host-x", "OLD");
      SetBody(message, name);
      if (rule == kTakesOver) continue;
      link->ended.reset();
      core_->OnAgentMessage(link, message);
      ASSERT_TRUE(link->ended.has_value());
      EXPECT_FALSE(link->ended->ok());
      if (link == new_link) {
        EXPECT_EQ(link->ended->code(), StatusCode::kAborted);
        EXPECT_THAT(std::string(link->ended->message()), HasSubstr("NEW"));
      }
    }
    const v1::ListNodesResponse nodes = core_->ListNodes();
    EXPECT_EQ(nodes.nodes(0).incarnation(), "NEW");
    core_->OnAgentGone(new_link.get());
    Settle();
  }
}

TEST_F(MembershipTest, AReportOfAnOldEpochCountsUpToItsCutAtMost) {
  const std::string id = Run(1, 2, 3, 20);
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  agent_->Step(id);
  Settle();
  ASSERT_EQ(Get(id).job_epoch(), 2u);
  ASSERT_EQ(Get(id).state(), v1::RUNNING);
  enum Rule { kIgnored, kUpToTheCut, kLabelled, kTelemetry };
  const std::map<std::string, Rule> rules = {
      {"hello", kIgnored},
      {"ready", kIgnored},
      {"stopped", kIgnored},
      {"formed", kIgnored},
      {"step", kUpToTheCut},
      {"evaluation", kUpToTheCut},
      {"checkpoint", kUpToTheCut},
      {"finished", kIgnored},
      {"failed", kIgnored},
      {"log", kLabelled},
      {"progress", kIgnored},
      {"notice", kTelemetry},
      {"evaluation_progress", kIgnored},
  };
  std::map<std::string, Rule> known = rules;
  // Others of the project add reports of their own; each says its rule here.
  ExpectComplete(v1::RankReport::descriptor(), "body", known);
  for (const auto& [name, rule] : rules) {
    for (const bool past_cut : {false, true}) {
      SCOPED_TRACE(fmt::format("{} past_cut={}", name, past_cut));
      const uint32_t seq = Get(id).last_seq();
      const size_t points = Points(id).size();
      v1::RankReport report;
      SetBody(report, name);
      report.set_job_epoch(1);
      const uint32_t step = past_cut ? 19 : 3;
      if (name == "evaluation") report.mutable_evaluation()->set_step(step);
      if (name == "step") report.mutable_step()->set_step(past_cut ? 19 : 2);
      if (name == "checkpoint") {
        report.mutable_checkpoint()->set_step(step);
        report.mutable_checkpoint()->set_path(fmt::format("c{}", step));
      }
      if (name == "failed") report.mutable_failed()->set_reason("non_finite_loss");
      if (name == "stopped") report.mutable_stopped()->set_step(19);
      const std::string worker = agent_->WorkerAt(id, 1, 0);
      report.set_worker_id(worker);
      report.set_job_id(id);
      report.set_number(++agent_->ranks().at(worker).number);
      agent_->SendAgain(report);
      Settle();
      EXPECT_EQ(Get(id).state(), v1::RUNNING);
      EXPECT_EQ(Get(id).job_epoch(), 2u);
      EXPECT_EQ(Points(id).size(), points) << "a point is published once";
      const bool published = Get(id).last_seq() > seq;
      const bool counts = rule == kLabelled || rule == kTelemetry ||
                          (rule == kUpToTheCut && !past_cut && name != "step");
      EXPECT_EQ(published, counts);
      if (rule == kLabelled) EXPECT_EQ(Stored(id).back().log().job_epoch(), 1u);
    }
  }
  agent_->Step(id);
  RunToTheEnd(id);
}

TEST_F(MembershipTest, AStoreCallOfAnOldEpochIsAborted) {
  const std::string id = Run(1, 2, 3);
  agent_->Kill(agent_->WorkerAt(id, 0, 0));
  Settle();
  ASSERT_EQ(Get(id).job_epoch(), 2u);
  const std::map<std::string, int> rules = {
      {"set", 0}, {"get", 0}, {"add", 0}, {"check", 0}, {"delete", 0}};
  ExpectComplete(v1::StoreRequest::descriptor(), "op", rules);
  for (const auto& [name, ignored] : rules) {
    SCOPED_TRACE(name);
    v1::StoreRequest request;
    request.set_job_id(id);
    request.set_job_epoch(1);
    request.set_key("k");
    request.set_worker_id(agent_->WorkerAt(id, 1, 0));
    if (name == "set") request.set_set("v");
    if (name == "add") request.set_add(1);
    if (name == "get") request.mutable_get();
    if (name == "check") request.mutable_check();
    if (name == "delete") request.mutable_delete_();
    absl::StatusOr<v1::StoreReply> reply;
    core_->CallStore(request, [&](absl::StatusOr<v1::StoreReply> answer) { reply = answer; });
    EXPECT_EQ(reply.status().code(), StatusCode::kAborted) << reply.status();
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr("2"));
  }
}

TEST_F(MembershipTest, AHostIsLostAfterItsLeaseAndNotBefore) {
  agent_ = &AddAgent("host-a", 1);
  fakes::FakeAgent& other = AddAgent("host-b", 1);
  const std::string id = Submit(Spec(1, 1));
  Settle();
  fakes::FakeAgent& holder = agent_->ranks().empty() ? other : *agent_;
  holder.Step(id);
  Settle();
  for (int i = 0; i < 10; ++i) Advance(std::chrono::milliseconds(500));
  holder.LoseHost();
  const auto tick = [this](std::chrono::milliseconds by) {
    now_.steady += by;
    now_.wall += by;
    (agent_->connected() ? *agent_ : *agents_["host-b"]).Heartbeat();
    core_->Tick();
    Settle();
  };
  tick(settings_.lost_after - std::chrono::milliseconds(50));
  EXPECT_EQ(Get(id).incidents_size(), 0);
  tick(std::chrono::milliseconds(100));
  ASSERT_EQ(Get(id).incidents_size(), 1);
  EXPECT_EQ(Get(id).incidents(0).cause(), "host_lost");
}

TEST_F(MembershipTest, AfterARestartAgentsHaveTimeToComeBack) {
  agent_ = &AddAgent("host-a", 1);
  fakes::FakeAgent& other = AddAgent("host-b", 1);
  const std::string id = Submit(Spec(1, 1));
  Settle();
  fakes::FakeAgent& holder = agent_->ranks().empty() ? other : *agent_;
  fakes::FakeAgent& spare = agent_->ranks().empty() ? *agent_ : other;
  holder.Step(id);
  Settle();
  RestartCore();
  spare.Connect(*core_);
  Advance(settings_.restart_grace - std::chrono::milliseconds(100));
  EXPECT_EQ(Get(id).incidents_size(), 0);
  holder.Connect(*core_);
  Settle();
  for (int i = 0; i < 10; ++i) Advance(std::chrono::milliseconds(500));
  EXPECT_EQ(Get(id).incidents_size(), 0);
  EXPECT_EQ(Get(id).job_epoch(), 1u);
}

/// Agents that answer the core's questions as a test says.
class LinkTest : public MembershipTest {
 protected:
  std::shared_ptr<TestLink> Join(const std::string& node, const std::string& address) {
    auto link = std::make_shared<TestLink>();
    v1::AgentMessage message = Registration(node, "I-" + node);
    message.mutable_register_()->set_data_address(address);
    message.mutable_register_()->set_data_port(4000);
    core_->OnAgentMessage(link, message);
    Settle();
    return link;
  }

  /// The last order of this kind, or nothing.
  static const v1::CoordinatorMessage* Last(const TestLink& link,
                                            v1::CoordinatorMessage::BodyCase kind) {
    for (auto message = link.sent.rbegin(); message != link.sent.rend(); ++message) {
      if (message->body_case() == kind) return &*message;
    }
    return nullptr;
  }

  void Answer(const std::shared_ptr<TestLink>& link, const std::string& node,
              v1::AgentMessage message) {
    message.set_node(node);
    message.set_incarnation("I-" + node);
    core_->OnAgentMessage(link, message);
    Settle();
  }

  /// Answers the probe that `link` was last ordered.
  void Measured(const std::shared_ptr<TestLink>& link, const std::string& node,
                const std::string& error, double rate) {
    const auto* order = Last(*link, v1::CoordinatorMessage::kProbeLink);
    ASSERT_NE(order, nullptr);
    v1::AgentMessage message;
    v1::LinkReport& report = *message.mutable_link_report();
    report.set_probe_id(order->probe_link().probe_id());
    report.set_node(order->probe_link().node());
    report.set_error(error);
    report.set_bytes_per_second(rate);
    Answer(link, node, message);
  }

  std::string ProblemOf(const std::string& node) {
    const v1::ListNodesResponse nodes = core_->ListNodes();
    for (const auto& status : nodes.nodes()) {
      if (status.node() == node) return status.problem();
    }
    return "not there";
  }
};

TEST_F(LinkTest, ANodeThatCannotBeReachedIsFoundAtJoin) {
  const auto first = Join("host-a", "10.0.0.1");
  EXPECT_EQ(Last(*first, v1::CoordinatorMessage::kProbeLink), nullptr) << "alone, nobody can say";
  const auto second = Join("host-b", "10.9.9.9");
  const auto* order = Last(*first, v1::CoordinatorMessage::kProbeLink);
  ASSERT_NE(order, nullptr);
  EXPECT_EQ(order->probe_link().address(), "10.9.9.9");
  EXPECT_EQ(order->probe_link().port(), 4000u);
  Measured(first, "host-a", "connect: no route to host", 0);
  EXPECT_THAT(ProblemOf("host-b"), HasSubstr("10.9.9.9:4000 cannot be reached: connect: no route"));
  EXPECT_THAT(ProblemOf("host-b"), HasSubstr("seen from host-a"));
  EXPECT_EQ(ProblemOf("host-a"), "");

  // A job that needs both hosts waits instead of failing in its first collective.
  const std::string id = Submit(Spec(1, 2));
  Settle();
  for (const auto& [link, node] : {std::pair(first, "host-a"), std::pair(second, "host-b")}) {
    const auto* task = Last(*link, v1::CoordinatorMessage::kRunTask);
    if (task == nullptr) continue;
    v1::AgentMessage message;
    message.mutable_task_result()->set_task_id(task->run_task().task_id());
    message.mutable_task_result()->set_job_id(id);
    message.mutable_task_result()->mutable_data_report()->set_train_images(64);
    Answer(link, node, message);
  }
  EXPECT_EQ(Get(id).state(), v1::PENDING) << Get(id).message();

  // It is measured again, and good then: the job starts.
  now_.steady += std::chrono::seconds(31);
  now_.wall += std::chrono::seconds(31);
  v1::AgentMessage heartbeat;
  heartbeat.mutable_heartbeat();
  Answer(first, "host-a", heartbeat);
  Answer(second, "host-b", heartbeat);
  core_->Tick();
  Settle();
  Measured(first, "host-a", "", 1e9);
  EXPECT_EQ(ProblemOf("host-b"), "");
  EXPECT_EQ(Get(id).state(), v1::STARTING) << Get(id).message();
}

TEST_F(LinkTest, ASlowNodeIsNamedAndAPeerThatIsItselfCutOffBlamesNobody) {
  const auto a = Join("host-a", "10.0.0.1");
  const auto b = Join("host-b", "10.0.0.2");
  Measured(a, "host-a", "", 1e9);
  const auto c = Join("host-c", "10.0.0.3");
  Measured(a, "host-a", "connect: timed out", 0);
  Measured(b, "host-b", "", 1e9);
  EXPECT_EQ(ProblemOf("host-c"), "") << "host-b reaches it";
  const auto d = Join("host-d", "10.0.0.4");
  Measured(a, "host-a", "", 1e6);
  Measured(b, "host-b", "", 1e6);
  Measured(c, "host-c", "", 1e6);
  EXPECT_THAT(ProblemOf("host-d"), HasSubstr("slow: 1.0 MB/s"));
}

TEST_F(LinkTest, AReadOfAFileEndsWhateverItsAgentDoes) {
  const auto link = Join("host-a", "10.0.0.1");
  std::vector<absl::StatusOr<v1::FileChunk>> answers;
  const auto ask = [&] {
    v1::ReadFile request;
    request.set_path("model");
    core_->ReadFile("host-a", request,
                    [&](absl::StatusOr<v1::FileChunk> chunk) { answers.push_back(chunk); });
    Settle();
  };
  ask();
  const auto* order = Last(*link, v1::CoordinatorMessage::kReadFile);
  ASSERT_NE(order, nullptr);
  v1::AgentMessage answer;
  answer.mutable_file_chunk()->set_read_id(order->read_file().read_id());
  answer.mutable_file_chunk()->set_data("bytes");
  Answer(link, "host-a", answer);
  Answer(link, "host-a", answer);  // twice is once
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0]->data(), "bytes");
  ask();
  answer.mutable_file_chunk()->set_read_id(
      Last(*link, v1::CoordinatorMessage::kReadFile)->read_file().read_id());
  answer.mutable_file_chunk()->set_error("no such file");
  answer.mutable_file_chunk()->set_code(static_cast<uint32_t>(StatusCode::kNotFound));
  Answer(link, "host-a", answer);
  EXPECT_EQ(answers[1].status().code(), StatusCode::kNotFound);
  ask();
  now_.steady += std::chrono::seconds(11);
  core_->Tick();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[2].status().code(), StatusCode::kUnavailable);
  v1::AgentMessage heartbeat;
  heartbeat.mutable_heartbeat();
  Answer(link, "host-a", heartbeat);
  ask();
  core_->OnAgentGone(link.get());
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[3].status().code(), StatusCode::kUnavailable);
}

/// Hosts that register, restart, fall silent and change their names, in any order: what is kept of
/// them is bounded by those that live, not by those that ever were.
TEST_F(MembershipTest, ChurnDoesNotMakeTablesGrow) {
  std::mt19937 random(7);
  std::map<std::string, std::shared_ptr<TestLink>> live;
  int made = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string name = fmt::format("host-{}", round / 10 * 10 + random() % 10);
    switch (random() % 6) {
      case 0:
      case 1:
      case 2: {
        auto link = std::make_shared<TestLink>();
        core_->OnAgentMessage(link, Registration(name, fmt::format("I{}", ++made)));
        live[name] = link;
        break;
      }
      case 3:
        if (live.empty()) break;
        core_->OnAgentGone(live.begin()->second.get());
        live.erase(live.begin());
        break;
      case 4:
        core_->OnAgentGone(nullptr);
        break;
      default:
        now_.wall += std::chrono::hours(2);
        now_.steady += std::chrono::hours(2);
        core_->Tick();
    }
    if (round % 500 == 499) {
      Settle();
      RestartCore();
      live.clear();
    }
  }
  for (auto& [name, link] : live) core_->OnAgentGone(link.get());
  for (int i = 0; i < 3; ++i) {
    now_.wall += settings_.forget_node_after;
    now_.steady += settings_.forget_node_after;
    core_->Tick();
  }
  Settle();
  EXPECT_GT(made, 1000);
  EXPECT_EQ(core_->ListNodes().nodes_size(), 0);
  EXPECT_EQ(core_->link_count(), 0u);
  EXPECT_TRUE(store_->LoadState()->nodes.empty());
}

TEST_F(MembershipTest, ADrainedOrBusyNodeIsNotForgotten) {
  const std::string id = Run(1, 1, 1);
  v1::DrainNodeRequest drain;
  drain.set_drain(true);
  fakes::FakeAgent& spare = AddAgent("host-b", 1);
  drain.set_node("host-b");
  ASSERT_TRUE(core_->DrainNode(drain).ok());
  Settle();
  spare.Disconnect();
  agent_->Disconnect();
  for (int i = 0; i < 3; ++i) {
    now_.wall += settings_.forget_node_after;
    now_.steady += settings_.forget_node_after;
    core_->Tick();
    Settle();
  }
  EXPECT_EQ(core_->ListNodes().nodes_size(), 2);
}

}  // namespace
}  // namespace tundish::jobs
