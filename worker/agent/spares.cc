#include "worker/agent/spares.h"

#include <algorithm>
#include <signal.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/ulid.h"
#include "worker/agent/rank_command.h"

namespace tundish::agent {
namespace {

constexpr int kMostFruitless = 3;

}  // namespace

void Spares::SetExitHandler(
    std::function<void(const std::string& process_id, const process::Exit&)> on) {
  on_exit_ = std::move(on);
}

void Spares::Keep(const v1::StartWorker& order) {
  if (order.warm_spares() == 0) return;
  Job& job = jobs_[order.job_id()];
  job.leaving.reset();
  if (job.fruitless >= kMostFruitless) return;
  const auto have = std::ranges::count_if(spares_, [&](const auto& entry) {
    return entry.second.job() == order.job_id() && !entry.second.exit_ordered;
  });
  if (std::cmp_less(have, order.warm_spares())) StartOne(order);  // One at a time: they cost.
}

void Spares::StartOne(const v1::StartWorker& order) {
  v1::WorkerRecord record;
  *record.mutable_start() = order;
  record.set_process_id(NewUlid(std::chrono::system_clock::now()));
  record.set_process_secret(RandomHex(16));
  record.set_spare(true);
  const std::string id = record.process_id();
  absl::Status status = state_.AddWorker(id);
  // Before the process exists, so that the next agent looks for it even if this one dies meanwhile.
  if (status.ok()) status = state_.WriteRecord(record);
  if (status.ok()) {
    auto process =
        process::Process::Start(io_.get_executor(), RankCommand(record, rank_binary_, state_),
                                [this, id](const process::Exit& exit) { on_exit_(id, exit); });
    status = process.status();
    if (status.ok()) {
      SetProcess((*process)->identity(), record);
      status = state_.WriteRecord(record);
      spdlog::info("event=spare_started spare={} job={} pid={}", id, record.start().job_id(),
                   record.pid());
      Insert(std::move(record), *std::move(process));
    } else {
      state_.DropRecord(id);
      ++jobs_[order.job_id()].fruitless;
    }
  }
  if (!status.ok()) {
    spdlog::warn("event=spare_failed spare={} job={} error=\"{}\"", id, order.job_id(),
                 std::string(status.message()));
  }
}

void Spares::Insert(v1::WorkerRecord record, std::unique_ptr<process::Process> process) {
  const std::string id = record.process_id();
  Worker& spare = spares_[id];
  spare.record = std::move(record);
  spare.process = std::move(process);
}

std::optional<Worker> Spares::Take(const v1::StartWorker& order) {
  if (const auto job = jobs_.find(order.job_id()); job != jobs_.end()) job->second.leaving.reset();
  auto best = spares_.end();
  for (auto at = spares_.begin(); at != spares_.end(); ++at) {
    const Worker& spare = at->second;
    if (spare.job() != order.job_id() || spare.exit_ordered ||
        spare.record.start().threads() != order.threads()) {
      continue;
    }
    if (best == spares_.end() || (best->second.stream == nullptr && spare.stream != nullptr)) {
      best = at;
    }
  }
  if (best == spares_.end()) return std::nullopt;
  v1::WorkerRecord record = best->second.record;
  *record.mutable_start() = order;
  record.set_spare(false);
  // From here on the next agent takes it for the worker, and tells it so when it attaches.
  if (absl::Status written = state_.WriteRecord(record); !written.ok()) {
    spdlog::warn("event=spare_not_used spare={} error=\"{}\"", best->first,
                 std::string(written.message()));
    return std::nullopt;
  }
  Worker worker = std::move(best->second);
  spares_.erase(best);
  worker.record = std::move(record);
  spdlog::info("event=spare_used spare={} worker={} job={} pid={} attached={}",
               ProcessId(worker.record), worker.id(), worker.job(), worker.record.pid(),
               worker.stream != nullptr);
  return worker;
}

bool Spares::OnExit(const std::string& process_id) {
  const auto found = spares_.find(process_id);
  if (found == spares_.end()) return false;
  Worker& spare = found->second;
  const bool attached = spare.stream != nullptr;
  Job& job = jobs_[spare.job()];
  if (!spare.exit_ordered) {
    job.fruitless = attached ? 0 : job.fruitless + 1;
    spdlog::warn("event=spare_ended spare={} job={} fruitless={} tail=\"{}\"", process_id,
                 spare.job(), job.fruitless, ReadTail(state_.log_of(process_id), 400));
    if (job.fruitless == kMostFruitless) {
      spdlog::error("event=no_more_spares job={} reason=\"{} in a row ended at their start\"",
                    spare.job(), kMostFruitless);
    }
  }
  if (spare.stream != nullptr) {
    spare.stream->Abandon(grpc::Status(grpc::StatusCode::ABORTED, "the spare has ended"));
  }
  spares_.erase(found);
  state_.DropRecord(process_id);
  return true;
}

bool Spares::Attach(const v1::RankReport& hello, const std::shared_ptr<RankStream>& stream,
                    absl::Status& status) {
  const auto found = spares_.find(hello.worker_id());
  if (found == spares_.end()) return false;
  Worker& spare = found->second;
  if (!SecretsEqual(spare.record.process_secret(), hello.hello().secret())) {
    status = absl::PermissionDeniedError(
        fmt::format("spare '{}' showed another secret than its own", hello.worker_id()));
    return true;
  }
  status = absl::OkStatus();
  if (spare.stream != nullptr) {
    spare.stream->Abandon(grpc::Status(grpc::StatusCode::ABORTED, "attached a second time"));
  }
  spare.stream = stream;
  jobs_[spare.job()].fruitless = 0;
  v1::RankOrder order;
  order.set_worker_id(found->first);
  order.set_job_id(spare.job());
  *order.mutable_prepare()->mutable_spec() = spare.record.start().spec();
  *order.mutable_prepare()->mutable_data() = spare.record.start().data();
  (void)stream->Send(order);  // The first message of a stream finds room.
  return true;
}

void Spares::Detach(std::string_view process_id, const RankStream* stream) {
  const auto found = spares_.find(process_id);
  if (found != spares_.end() && found->second.stream.get() == stream) {
    found->second.stream = nullptr;
  }
}

void Spares::JobLeft(const std::string& job_id, bool by_order) {
  if (by_order) return KillJob(job_id);
  Job& job = jobs_[job_id];
  job.leaving = std::make_unique<boost::asio::steady_timer>(io_, kGrace);
  job.leaving->async_wait([this, job_id](boost::system::error_code cancelled) {
    if (!cancelled) KillJob(job_id);
  });
}

void Spares::KillJob(const std::string& job_id) {
  for (auto& [id, spare] : spares_) {
    if (spare.job() != job_id) continue;
    spare.exit_ordered = true;
    (void)spare.process->Signal(SIGKILL);  // NotFound: its exit is on the way.
  }
  jobs_.erase(job_id);
}

std::set<std::string> Spares::Jobs() const {
  std::set<std::string> jobs;
  for (const auto& [id, spare] : spares_) jobs.insert(spare.job());
  return jobs;
}

void Spares::KillAll() {
  for (auto& [id, spare] : spares_) {
    spare.exit_ordered = true;
    (void)spare.process->Signal(SIGKILL);
  }
}

void Spares::DetachAll() {
  for (auto& [id, spare] : spares_) {
    if (spare.stream == nullptr) continue;
    std::exchange(spare.stream, nullptr)
        ->Abandon(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the agent is stopping"));
  }
}

}  // namespace tundish::agent
