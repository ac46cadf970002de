#include "tests/fakes/fake_agent.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/ulid.h"

namespace tundish::fakes {

class FakeAgent::Link : public jobs::AgentLink {
 public:
  explicit Link(FakeAgent& agent) : agent_(agent) {}
  bool Send(v1::CoordinatorMessage message) override {
    if (agent_.link_.get() != this) return false;
    agent_.inbox_.push_back(std::move(message));
    return true;
  }
  void End(const absl::Status&) override {
    if (agent_.link_.get() == this) agent_.link_ = nullptr;
  }

 private:
  FakeAgent& agent_;  // Outlives the core, which holds the link.
};

FakeAgent::FakeAgent(std::string node, int devices)
    : name_(std::move(node)),
      incarnation_(NewUlid(std::chrono::system_clock::now())),
      devices_(devices) {}

void FakeAgent::Connect(jobs::Core& core) {
  core_ = &core;
  inbox_.clear();
  link_ = std::make_shared<Link>(*this);
  v1::AgentMessage message;
  v1::Register* registration = message.mutable_register_();
  registration->set_version("0.1.0");
  registration->set_data_address("127.0.0.1");
  for (int i = 0; i < devices_; ++i) {
    v1::Device* device = registration->add_devices();
    device->set_name(fmt::format("cpu:{}", i));
    device->set_kind("cpu");
  }
  for (const auto& [id, rank] : ranks_) {
    v1::LiveWorker* worker = registration->add_workers();
    worker->set_worker_id(id);
    worker->set_job_id(rank.job_id);
    worker->set_pid(1000);
    worker->set_attached(true);
    for (const std::string& device : rank.devices) worker->add_devices(device);
  }
  Send(std::move(message));
}

void FakeAgent::Disconnect() {
  const auto link = std::exchange(link_, nullptr);
  inbox_.clear();
  if (core_ != nullptr && link != nullptr) core_->OnAgentGone(link.get());
}

void FakeAgent::Send(v1::AgentMessage message) {
  if (core_ == nullptr || link_ == nullptr) return;
  message.set_node(name_);
  message.set_incarnation(incarnation_);
  core_->OnAgentMessage(link_, message);
}

void FakeAgent::Heartbeat() {
  v1::AgentMessage message;
  message.mutable_heartbeat();
  Send(std::move(message));
}

bool FakeAgent::Process() {
  if (inbox_.empty()) return false;
  for (const v1::CoordinatorMessage& message : std::exchange(inbox_, {})) Handle(message);
  return true;
}

void FakeAgent::AnswerTask() {
  v1::AgentMessage answer;
  v1::TaskResult* result = answer.mutable_task_result();
  result->set_task_id(last_task_.task_id());
  result->set_job_id(last_task_.job_id());
  result->set_error(manners_.data_error);
  if (manners_.data_error.empty()) {
    result->mutable_data_report()->set_train_images(64);
    result->mutable_data_report()->set_validation_images(16);
    result->mutable_data_report()->add_classes("bad");
    result->mutable_data_report()->add_classes("good");
  }
  Send(std::move(answer));
}

void FakeAgent::Handle(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kStartWorker: {
      const v1::StartWorker& start = message.start_worker();
      log_.push_back("start");
      if (ranks_.contains(start.worker_id())) return;
      Rank& rank = ranks_[start.worker_id()];
      rank.job_id = start.job_id();
      rank.devices = {start.devices().begin(), start.devices().end()};
      if (!manners_.become_ready) return;
      v1::RankReport report;
      report.mutable_ready()->set_pid(1000);
      return Report(start.worker_id(), std::move(report));
    }
    case v1::CoordinatorMessage::kKillWorker:
      log_.push_back("kill");
      if (manners_.die_when_killed) Kill(message.kill_worker().worker_id());
      return;
    case v1::CoordinatorMessage::kOrder:
      return HandleOrder(message.order());
    case v1::CoordinatorMessage::kAck: {
      const auto rank = ranks_.find(message.ack().worker_id());
      if (rank == ranks_.end()) return;
      auto& reports = rank->second.unacknowledged;
      reports.erase(reports.begin(), reports.upper_bound(message.ack().number()));
      return;
    }
    case v1::CoordinatorMessage::kRunTask:
      log_.push_back("check");
      last_task_ = message.run_task();
      if (manners_.check_data) AnswerTask();
      return;
    case v1::CoordinatorMessage::kCancelTask:
      log_.push_back("cancel_task");
      return;
    default:
      return;
  }
}

void FakeAgent::HandleOrder(const v1::RankOrder& order) {
  const auto found = ranks_.find(order.worker_id());
  if (found == ranks_.end()) return;
  Rank& rank = found->second;
  switch (order.body_case()) {
    case v1::RankOrder::kAssign:
      log_.push_back("assign");
      return Assign(order.worker_id(), order);
    case v1::RankOrder::kStop: {
      log_.push_back("stop");
      if (order.job_epoch() < rank.job_epoch || !manners_.answer_stop) return;
      rank.formed = false;
      v1::RankReport report;
      report.mutable_stopped()->set_step(rank.step);
      report.mutable_stopped()->set_phase(rank.reduced ? v1::REDUCED : v1::COMPUTING);
      report.mutable_stopped()->set_has_state(rank.has_state);
      if (rank.has_state && rank.step > 0) {
        for (int tp = 0; tp < rank.tensor; ++tp) {
          report.mutable_stopped()->mutable_committed_sums()->add_norm_squared_bits(rank.step);
          report.mutable_stopped()->mutable_committed_sums()->add_norm_known(true);
        }
      }
      report.set_job_epoch(order.job_epoch());  // whatever it acted in
      return Report(order.worker_id(), std::move(report));
    }
    case v1::RankOrder::kYield:
      log_.push_back("yield");
      if (order.job_epoch() == rank.job_epoch) rank.yields = true;
      return;
    case v1::RankOrder::kSave: {
      log_.push_back("save");
      if (!manners_.answer_save) return;
      return Save(order.worker_id(), order);
    }
    case v1::RankOrder::kExit: {
      log_.push_back("exit");
      if (!manners_.exit_when_told) return;
      v1::AgentMessage message;
      message.mutable_worker_exited()->set_worker_id(order.worker_id());
      message.mutable_worker_exited()->set_job_id(order.job_id());
      ranks_.erase(found);
      return Send(std::move(message));
    }
    case v1::RankOrder::kProbe: {
      log_.push_back("probe");
      if (rank.hangs) return;
      v1::RankReport report;
      report.mutable_progress()->set_phase(v1::PHASE_STEP);
      report.mutable_progress()->set_probe(order.probe().number());
      return Report(order.worker_id(), std::move(report));
    }
    case v1::RankOrder::kResend: {
      log_.push_back("resend");
      const auto reports = rank.unacknowledged;
      for (const auto& [number, report] : reports) SendKept(rank, report);
      return;
    }
    default:
      return;
  }
}

void FakeAgent::Assign(const std::string& worker_id, const v1::RankOrder& order) {
  Rank& rank = ranks_.at(worker_id);
  if (order.job_epoch() <= rank.job_epoch) return;
  const v1::Assignment& assign = order.assign();
  rank.job_epoch = order.job_epoch();
  rank.dp = assign.dp();
  rank.tp = assign.tp();
  rank.step = assign.start().step();
  rank.total_steps = assign.total_steps();
  rank.has_state = true;
  rank.reduced = false;
  rank.yields = false;
  rank.data = assign.spec().parallel().data();
  rank.tensor = assign.spec().parallel().tensor();
  ++rank.assignments;
  rank.start_kind = assign.start().has_fresh()     ? "fresh"
                    : assign.start().has_keep()    ? "keep"
                    : assign.start().has_commit()  ? "commit"
                    : assign.start().has_receive() ? "receive"
                                                   : "checkpoint";
  if (!manners_.form) return;
  rank.formed = true;
  v1::RankReport report;
  report.mutable_formed()->set_step(rank.step);
  Report(worker_id, std::move(report));
}

void FakeAgent::Report(const std::string& worker_id, v1::RankReport report) {
  Rank& rank = ranks_.at(worker_id);
  report.set_worker_id(worker_id);
  report.set_job_id(rank.job_id);
  if (report.job_epoch() == 0) report.set_job_epoch(rank.job_epoch);
  report.set_number(++rank.number);
  rank.unacknowledged[report.number()] = report;
  SendKept(rank, report);
}

void FakeAgent::SendKept(const Rank& rank, v1::RankReport report) {
  if (manners_.lose_reports) return;
  const auto here = rank.unacknowledged.lower_bound(report.number());
  report.set_after(here == rank.unacknowledged.begin() ? 0 : std::prev(here)->first);
  SendAgain(report);
}

void FakeAgent::SendAgain(const v1::RankReport& report) {
  v1::AgentMessage message;
  *message.mutable_reports()->add_reports() = report;
  Send(std::move(message));
}

void FakeAgent::StepOne(const std::string& worker_id) {
  Rank& rank = ranks_.at(worker_id);
  v1::RankReport report;
  v1::StepDone* step = report.mutable_step();
  step->set_step(rank.step++);
  step->set_loss(1.0 / (1 + step->step()));
  step->set_learning_rate(0.001);
  step->mutable_time()->set_step_seconds(manners_.step_seconds);
  step->mutable_time()->set_dp(rank.dp);
  step->mutable_time()->set_tp(rank.tp);
  Report(worker_id, std::move(report));
}

void FakeAgent::Save(const std::string& worker_id, const v1::RankOrder& order) {
  Rank& rank = ranks_.at(worker_id);
  const v1::Save& save = order.save();
  rank.step = save.start().step();
  rank.reduced = false;
  rank.saved_from = save.start().has_commit() ? "commit" : "keep";
  if (manners_.can_save) {
    v1::RankReport written;
    written.set_job_epoch(order.job_epoch());
    written.mutable_checkpoint()->set_step(rank.step);
    written.mutable_checkpoint()->set_path(
        fmt::format("{}/checkpoints/e{}-step{}", rank.job_id, order.job_epoch(), rank.step));
    Report(worker_id, written);
  }
  v1::RankReport report;
  report.mutable_stopped()->set_step(rank.step);
  report.mutable_stopped()->set_phase(v1::COMPUTING);
  report.mutable_stopped()->set_has_state(true);
  report.mutable_stopped()->set_saved(manners_.can_save);
  report.set_job_epoch(order.job_epoch());
  if (ranks_.contains(worker_id)) Report(worker_id, report);
}

void FakeAgent::Step(const std::string& job_id) {
  std::vector<std::string> training;
  bool yields = false;
  for (const auto& [id, rank] : ranks_) {
    if (rank.job_id != job_id || !rank.formed) continue;
    training.push_back(id);
    yields = yields || rank.yields;
  }
  for (const std::string& id : training) StepOne(id);
  if (yields) AgreeToStop(job_id);
}

void FakeAgent::AgreeToStop(const std::string& job_id) {
  std::vector<std::string> training;
  for (auto& [id, rank] : ranks_) {
    if (rank.job_id != job_id || !rank.formed || rank.step >= rank.total_steps) continue;
    rank.formed = false;
    training.push_back(id);
  }
  for (const std::string& id : training) {
    v1::RankReport report;
    report.mutable_stopped()->set_step(ranks_.at(id).step);
    report.mutable_stopped()->set_phase(v1::COMPUTING);
    report.mutable_stopped()->set_has_state(true);
    report.mutable_stopped()->set_agreed(true);
    Report(id, report);
  }
}

void FakeAgent::Finish(const std::string& job_id) {
  std::vector<std::string> all;
  for (const auto& [id, rank] : ranks_) {
    if (rank.job_id == job_id) all.push_back(id);
  }
  for (const std::string& id : all) {
    const auto rank = ranks_.find(id);
    if (rank == ranks_.end()) continue;
    v1::RankReport report;
    v1::Finished* finished = report.mutable_finished();
    if (rank->second.dp == 0 && rank->second.tp == 0) {
      finished->mutable_model()->set_kind("model");
      finished->mutable_model()->set_path(job_id + "/model/model.safetensors");
      finished->mutable_model()->set_step(rank->second.step);
    }
    Report(id, std::move(report));
  }
}

void FakeAgent::Kill(const std::string& worker_id, int signal) {
  const auto rank = ranks_.find(worker_id);
  if (rank == ranks_.end()) return;
  v1::AgentMessage message;
  message.mutable_worker_exited()->set_worker_id(worker_id);
  message.mutable_worker_exited()->set_job_id(rank->second.job_id);
  message.mutable_worker_exited()->set_signal(signal);
  message.mutable_worker_exited()->set_observed_ms(1.5);
  message.mutable_worker_exited()->set_log_tail(manners_.log_tail);
  ranks_.erase(rank);
  Send(std::move(message));
}

void FakeAgent::LoseHost() {
  Disconnect();
  ranks_.clear();
}

std::string FakeAgent::WorkerAt(const std::string& job_id, int dp, int tp) const {
  for (const auto& [id, rank] : ranks_) {
    if (rank.job_id == job_id && rank.dp == dp && rank.tp == tp && rank.job_epoch > 0) return id;
  }
  return "";
}

int FakeAgent::Count(const std::string& order) const {
  return static_cast<int>(std::ranges::count(log_, order));
}

}  // namespace tundish::fakes
