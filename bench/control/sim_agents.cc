#include "bench/control/sim_agents.h"

#include <boost/asio/post.hpp>
#include <fmt/core.h>

#include "bench/control/submit_load.h"
#include "runtime/base/ulid.h"

namespace tundish::bench {

using Clock = std::chrono::steady_clock;

SimAgents::SimAgents(Options options)
    : options_(std::move(options)), work_(io_.get_executor()), step_timer_(io_) {}

SimAgents::~SimAgents() {
  Stop();
}

void SimAgents::Start() {
  for (int i = 0; i < options_.count; ++i) {
    Agent& agent = *agents_.emplace_back(std::make_unique<Agent>());
    agent.name = fmt::format("{}-{}", options_.name, i);
    agent.stub = v1::NodeService::NewStub(OwnChannel(options_.address));
    agent.link = std::make_unique<agent::CoordinatorLink>(
        io_, *agent.stub, agent.name, NewUlid(std::chrono::system_clock::now()),
        agent::CoordinatorLink::Callbacks{
            .registration =
                [this] {
                  v1::Register registration;
                  registration.set_version(TUNDISH_VERSION);
                  registration.set_data_address("127.0.0.1");
                  for (int d = 0; d < options_.devices; ++d) {
                    v1::Device& device = *registration.add_devices();
                    device.set_name(fmt::format("cpu:{}", d));
                    device.set_kind("cpu");
                  }
                  return registration;
                },
            .on_message = [this, &agent](
                              const v1::CoordinatorMessage& message) { OnMessage(agent, message); },
            .on_connected =
                [this, &agent](bool connected) {
                  if (connected == std::exchange(agent.connected, connected)) return;
                  connected_ += connected ? 1 : -1;
                  if (!connected) ++lost_;
                },
            .on_settled = [](const v1::AgentMessage&) {},
            .on_room = [] {}});
  }
  thread_ = std::thread([this] { io_.run(); });
  boost::asio::post(io_, [this] {
    for (auto& agent : agents_) agent->link->Start();
    if (options_.steps_per_second > 0) {
      step_timer_.expires_after(std::chrono::milliseconds(0));
      ArmStep();
    }
  });
}

void SimAgents::Stop() {
  if (!thread_.joinable()) return;
  boost::asio::post(io_, [this] {
    step_timer_.cancel();
    auto left = std::make_shared<size_t>(agents_.size());
    for (auto& agent : agents_) {
      agent->link->Close(std::chrono::seconds(1), [this, left] {
        if (--*left == 0) work_.reset();
      });
    }
    if (agents_.empty()) work_.reset();
  });
  thread_.join();
}

bool SimAgents::AwaitConnected(int count, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (connected_ < count) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void SimAgents::OnMessage(Agent& agent, const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kRunTask: {
      v1::AgentMessage fact;
      v1::TaskResult& result = *fact.mutable_task_result();
      result.set_task_id(message.run_task().task_id());
      result.set_job_id(message.run_task().job_id());
      result.mutable_data_report()->set_train_images(4096);
      result.mutable_data_report()->add_classes("bad");
      result.mutable_data_report()->add_classes("good");
      return agent.link->Tell(std::move(fact), Clock::now());
    }
    case v1::CoordinatorMessage::kStartWorker: {
      const v1::StartWorker& start = message.start_worker();
      Rank& rank = agent.ranks[start.worker_id()];
      rank.worker_id = start.worker_id();
      rank.job_id = start.job_id();
      v1::RankReport report;
      report.mutable_ready()->set_pid(1);
      return Report(agent, rank, std::move(report));
    }
    case v1::CoordinatorMessage::kOrder: {
      const auto rank = agent.ranks.find(message.order().worker_id());
      if (rank != agent.ranks.end()) OnOrder(agent, rank->second, message.order());
      return;
    }
    case v1::CoordinatorMessage::kKillWorker: {
      v1::AgentMessage fact;
      fact.mutable_worker_exited()->set_worker_id(message.kill_worker().worker_id());
      fact.mutable_worker_exited()->set_job_id(message.kill_worker().job_id());
      fact.mutable_worker_exited()->set_signal(9);
      agent.ranks.erase(message.kill_worker().worker_id());
      return agent.link->Tell(std::move(fact), Clock::now());
    }
    default:
      return;
  }
}

void SimAgents::OnOrder(Agent& agent, Rank& rank, const v1::RankOrder& order) {
  if (!order.has_assign()) return;
  rank.dp = order.assign().dp();
  rank.tp = order.assign().tp();
  rank.job_epoch = order.job_epoch();
  rank.formed = true;
  v1::RankReport report;
  report.mutable_formed()->set_step(0);
  Report(agent, rank, std::move(report));
}

void SimAgents::Report(Agent& agent, Rank& rank, v1::RankReport report) {
  report.set_worker_id(rank.worker_id);
  report.set_job_id(rank.job_id);
  report.set_job_epoch(rank.job_epoch);
  report.set_number(++rank.number);
  agent.link->Report(std::move(report));
}

void SimAgents::ArmStep() {
  step_timer_.expires_at(step_timer_.expiry() + std::chrono::microseconds(static_cast<int64_t>(
                                                    1e6 / options_.steps_per_second)));
  step_timer_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled) return;
    Step();
    if (times_.size() < options_.steps) ArmStep();
  });
}

void SimAgents::Step() {
  int ranks = 0;
  for (auto& agent : agents_) {
    for (const auto& [id, rank] : agent->ranks) ranks += rank.formed;
  }
  if (ranks == 0) return;
  for (auto& agent : agents_) {
    for (auto& [id, rank] : agent->ranks) {
      if (!rank.formed) continue;
      v1::RankReport report;
      v1::StepDone& step = *report.mutable_step();
      step.set_step(static_cast<uint32_t>(times_.size()));
      step.set_loss(0.5);
      step.set_learning_rate(1e-4);
      step.mutable_time()->set_dp(rank.dp);
      step.mutable_time()->set_tp(rank.tp);
      step.mutable_time()->set_step_seconds(0.1);
      step.mutable_time()->set_forward_seconds(0.03);
      step.mutable_time()->set_backward_seconds(0.06);
      Report(*agent, rank, std::move(report));
    }
  }
  times_.push_back(Clock::now());
}

}  // namespace tundish::bench
