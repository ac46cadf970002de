#include "worker/rank/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include "worker/engine/trainer/fatal_error.h"

namespace tundish::rank {
namespace {

// c10 errors carry a C++ back trace that says nothing to the reader of a report.
std::string Describe(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

}  // namespace

Session::Session(Outside outside) : outside_(std::move(outside)), trainer_(*this) {}

void Session::OnOrder(const v1::RankOrder& order) {
  const uint32_t epoch = order.job_epoch();
  if (order.has_probe()) {
    v1::RankReport report = HowFar();
    report.mutable_progress()->set_probe(order.probe().number());
    return Send(std::move(report));
  }
  std::shared_ptr<trainer::Arrangement> ended;
  {
    const std::lock_guard lock(mutex_);
    switch (order.body_case()) {
      case v1::RankOrder::kExit:
        exit_ = true;
        ended = arrangement_;
        break;
      case v1::RankOrder::kStop:
        if (epoch < std::max(assigned_epoch_, stopped_epoch_)) return;
        stopped_epoch_ = epoch;
        ended = arrangement_;
        orders_.push_back(order);
        break;
      case v1::RankOrder::kAssign:
        // Repeated after an agent came back, or overtaken by a Stop.
        if (epoch <= assigned_epoch_ || epoch <= stopped_epoch_) return;
        assigned_epoch_ = epoch;
        ended = arrangement_;  // Of an older epoch, whose Stop went missing.
        orders_.push_back(order);
        break;
      case v1::RankOrder::kYield:
        yield_epoch_ = epoch;
        if (arrangement_ && arrangement_->job_epoch() == epoch) arrangement_->RequestYield();
        return;
      case v1::RankOrder::kSave:
        // Of the job_epoch in preparation; once that has begun, or has been given up, too late.
        if (epoch <= assigned_epoch_ || epoch <= stopped_epoch_) return;
        orders_.push_back(order);
        break;
      case v1::RankOrder::kPrepare:
      case v1::RankOrder::kBecome:
        orders_.push_back(order);
        break;
      default:
        return;
    }
  }
  ordered_.notify_all();
  if (ended) ended->Abort();
}

void Session::Run(const v1::Ready& ready, bool spare) {
  v1::RankOrder order;
  order.mutable_become();
  if (!spare) Obey(order, ready);  // A worker is one from the start.
  while (NextOrder(order)) Obey(order, ready);
  Leave();
}

void Session::Obey(const v1::RankOrder& order, const v1::Ready& ready) {
  switch (order.body_case()) {
    case v1::RankOrder::kBecome: {
      v1::RankReport report;
      *report.mutable_ready() = ready;
      return Send(std::move(report));
    }
    case v1::RankOrder::kPrepare:
      try {
        return trainer_.WarmUp(order.prepare().spec(), order.prepare().data());
      } catch (const std::exception& error) {
        // It serves all the same; what is wrong shows when it is assigned.
        spdlog::warn("event=warm_up_failed error=\"{}\"", Describe(error));
        return;
      }
    case v1::RankOrder::kAssign:
      return Assign(order);
    case v1::RankOrder::kSave:
      return Save(order);
    default:
      return Stop(order);
  }
}

bool Session::NextOrder(v1::RankOrder& order) {
  std::unique_lock lock(mutex_);
  ordered_.wait(lock, [this] { return exit_ || !orders_.empty(); });
  if (exit_) return false;
  order = std::move(orders_.front());
  orders_.pop_front();
  return true;
}

void Session::Assign(const v1::RankOrder& order) {
  Leave();
  if (given_up_) return;
  const v1::Assignment& assignment = order.assign();
  const auto arrangement = std::make_shared<trainer::Arrangement>(
      order.job_epoch(), outside_.make_store(order.job_epoch()));
  if (!Enter(order, arrangement)) return;
  spdlog::info("event=assigned job_epoch={} dp={} tp={} start_step={}", order.job_epoch(),
               assignment.dp(), assignment.tp(), assignment.start().step());
  Work(assignment, *arrangement);
}

void Session::Work(const v1::Assignment& assignment, trainer::Arrangement& arrangement) {
  const uint32_t epoch = arrangement.job_epoch();
  try {
    if (trainer_.Run(assignment, arrangement) == trainer::Outcome::kYielded) {
      v1::Stopped agreed;
      agreed.set_agreed(true);
      ReportStopped(epoch, "", agreed);
    }
  } catch (const trainer::FatalError& error) {
    trainer_.Quiesce(arrangement);
    // Another checkpoint may be readable; whatever else is wrong stays wrong.
    given_up_ = error.reason() != "checkpoint_unreadable";
    spdlog::error("event=rank_failed reason={} error=\"{}\"", error.reason(), error.what());
    v1::RankReport report;
    report.mutable_failed()->set_reason(error.reason());
    report.mutable_failed()->set_message(error.what());
    Send(std::move(report));
  } catch (const std::exception& error) {
    trainer_.Quiesce(arrangement);
    // An ordered stop is answered by the order itself, which waits in the queue.
    if (IsStopped(epoch)) return;
    const std::string cause = Describe(error);
    spdlog::warn("event=arrangement_broke job_epoch={} cause=\"{}\"", epoch, cause);
    ReportStopped(epoch, cause);
  }
}

void Session::Stop(const v1::RankOrder& order) {
  Leave();
  ReportStopped(order.job_epoch(), "");
}

void Session::Save(const v1::RankOrder& order) {
  Leave();
  v1::Stopped answer;
  std::string cause;
  try {
    answer.set_saved(trainer_.Save(order.save(), order.job_epoch()));
    if (!answer.saved()) cause = "the checkpoint could not be written";
  } catch (const std::exception& error) {
    cause = Describe(error);
    spdlog::error("event=save_failed job_epoch={} error=\"{}\"", order.job_epoch(), cause);
  }
  ReportStopped(order.job_epoch(), cause, answer);
}

/// False when the assignment's epoch was stopped before it began.
bool Session::Enter(const v1::RankOrder& order,
                    const std::shared_ptr<trainer::Arrangement>& arrangement) {
  const std::lock_guard lock(mutex_);
  if (exit_ || order.job_epoch() <= stopped_epoch_) return false;
  arrangement_ = arrangement;
  if (yield_epoch_ == order.job_epoch()) arrangement_->RequestYield();
  dp_ = order.assign().dp();
  tp_ = order.assign().tp();
  job_epoch_ = order.job_epoch();
  return true;
}

void Session::Leave() {
  std::shared_ptr<trainer::Arrangement> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(arrangement_);
  }
  if (left) trainer_.Quiesce(*left);
  phase_ = v1::PHASE_IDLE;
}

bool Session::IsStopped(uint32_t job_epoch) {
  const std::lock_guard lock(mutex_);
  return exit_ || job_epoch <= stopped_epoch_ || job_epoch < assigned_epoch_;
}

void Session::ReportStopped(uint32_t job_epoch, const std::string& cause, const v1::Stopped& more) {
  v1::RankReport report;
  *report.mutable_stopped() = trainer_.Standing();
  report.mutable_stopped()->MergeFrom(more);
  report.mutable_stopped()->set_cause(cause);
  report.set_job_epoch(job_epoch);
  spdlog::info("event=stopped job_epoch={} step={} phase={} has_state={}", job_epoch,
               report.stopped().step(), v1::StepPhase_Name(report.stopped().phase()),
               report.stopped().has_state());
  outside_.report(std::move(report));
}

void Session::Send(v1::RankReport report) {
  report.set_job_epoch(job_epoch_);
  outside_.report(std::move(report));
}

v1::RankReport Session::HowFar() {
  v1::RankReport report;
  v1::Progress& progress = *report.mutable_progress();
  progress.set_phase(phase_);
  const std::lock_guard lock(mutex_);
  progress.set_counter(points_ + (arrangement_ ? arrangement_->collectives() : 0));
  return report;
}

void Session::OnPhase(v1::RankPhase phase) {
  if (phase_.exchange(phase) != phase) Send(HowFar());
}

void Session::OnPoint(trainer::StepPoint /*point*/, uint32_t /*step*/) {
  ++points_;
}

void Session::OnFormed(const v1::Formed& formed) {
  points_ = 0;
  v1::RankReport report;
  *report.mutable_formed() = formed;
  Send(std::move(report));
}

void Session::OnStepDone(const v1::StepDone& step) {
  v1::RankReport report;
  *report.mutable_step() = step;
  Send(std::move(report));
}

void Session::OnEvaluation(const v1::Evaluation& evaluation) {
  v1::RankReport report;
  *report.mutable_evaluation() = evaluation;
  Send(std::move(report));
}

void Session::OnCheckpoint(uint32_t job_epoch, const v1::CheckpointWritten& checkpoint) {
  v1::RankReport report;
  *report.mutable_checkpoint() = checkpoint;
  report.set_job_epoch(job_epoch);  // The next arrangement may have begun.
  outside_.report(std::move(report));
}

void Session::OnFinished(const v1::Finished& finished) {
  v1::RankReport report;
  *report.mutable_finished() = finished;
  Send(std::move(report));
}

}  // namespace tundish::rank
