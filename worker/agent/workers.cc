#include "worker/agent/workers.h"

#include <algorithm>
#include <signal.h>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "runtime/rpc/status.h"
#include "worker/agent/rank_command.h"

namespace tundish::agent {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

namespace {

/// A dead process's socket is closed by the kernel, so its stream ends by itself; this is for one
/// that a child of the rank holds open.
constexpr std::chrono::milliseconds kLastWords{200};

}  // namespace

Workers::Workers(asio::io_context& io, StateDir& state, Options options, OnExited on_exited)
    : io_(io),
      state_(state),
      options_(std::move(options)),
      on_exited_(std::move(on_exited)),
      spares_(io, state, options_.rank_binary),
      kill_limit_(io) {
  spares_.SetExitHandler([this](const std::string& process_id, const process::Exit& exit) {
    OnProcessExit(process_id, exit);
  });
}

std::string Workers::IdOf(std::string_view process_id) const {
  if (workers_.contains(process_id)) return std::string(process_id);
  const auto found = std::ranges::find_if(workers_, [process_id](const auto& entry) {
    return entry.second.record.process_id() == process_id;
  });
  return found == workers_.end() ? std::string(process_id) : found->first;
}

absl::Status Workers::CheckDevices(const v1::StartWorker& order) const {
  if (order.devices().empty()) return absl::InvalidArgumentError("the order names no device");
  for (const std::string& device : order.devices()) {
    if (std::ranges::find(options_.devices, device) == options_.devices.end()) {
      return absl::InvalidArgumentError(fmt::format("this host offers no device '{}'; it has {}",
                                                    device, fmt::join(options_.devices, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::Status Workers::Start(const v1::StartWorker& order) {
  if (workers_.contains(order.worker_id())) return absl::OkStatus();
  if (absl::Status devices = CheckDevices(order); !devices.ok()) return devices;
  if (std::optional<Worker> spare = spares_.Take(order)) {
    folders_[order.worker_id()] = ProcessId(spare->record);
    Worker& worker = workers_[order.worker_id()] = *std::move(spare);
    Send(worker, BecomeOrder(worker));
    return absl::OkStatus();
  }
  if (absl::Status added = state_.AddWorker(order.worker_id()); !added.ok()) return added;
  v1::WorkerRecord record;
  *record.mutable_start() = order;
  // Before the process exists, so that the next agent looks for it even if this one dies meanwhile.
  if (absl::Status written = state_.WriteRecord(record); !written.ok()) return written;
  auto process =
      process::Process::Start(io_.get_executor(), RankCommand(record, options_.rank_binary, state_),
                              ExitHandler(order.worker_id()));
  if (!process.ok()) {
    state_.DropRecord(order.worker_id());
    return process.status();
  }
  SetProcess((*process)->identity(), record);
  if (absl::Status written = state_.WriteRecord(record); !written.ok()) {
    // The first record is still there and finds the process by its arguments.
    spdlog::warn("event=worker_record_failed worker={} error=\"{}\"", order.worker_id(),
                 std::string(written.message()));
  }
  spdlog::info("event=worker_started worker={} job={} pid={} devices={}", order.worker_id(),
               order.job_id(), record.pid(), fmt::join(order.devices(), ","));
  Insert(std::move(record), *std::move(process), false);
  return absl::OkStatus();
}

void Workers::Insert(v1::WorkerRecord record, std::unique_ptr<process::Process> process,
                     bool adopted) {
  const std::string id = record.start().worker_id();
  Worker& worker = workers_[id];
  worker.record = std::move(record);
  worker.process = std::move(process);
  worker.adopted = adopted;
}

process::Process::OnExit Workers::ExitHandler(const std::string& process_id) {
  return [this, process_id](const process::Exit& exit) { OnProcessExit(process_id, exit); };
}

void Workers::Kill(const v1::KillWorker& order) {
  const auto found = workers_.find(order.worker_id());
  if (found != workers_.end()) {
    spdlog::info("event=worker_kill_ordered worker={} job={}", order.worker_id(), order.job_id());
    (void)found->second.process->Signal(SIGKILL);  // NotFound: its exit is on the way.
    return;
  }
  v1::WorkerExited exited;
  exited.set_worker_id(order.worker_id());
  exited.set_job_id(order.job_id());
  exited.set_adopted(true);
  on_exited_(std::move(exited), Clock::now());
}

void Workers::Deliver(v1::RankOrder order) {
  const auto found = workers_.find(order.worker_id());
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  if (order.has_assign()) worker.job_epoch = std::max(worker.job_epoch, order.job_epoch());
  if (order.has_exit()) worker.exit_ordered = true;
  Send(worker, std::move(order));
}

void Workers::Acknowledge(const v1::ReportAck& ack) {
  const auto found = workers_.find(ack.worker_id());
  if (found == workers_.end()) return;
  v1::RankOrder order;
  order.set_worker_id(ack.worker_id());
  order.set_job_id(found->second.job());
  order.set_job_epoch(found->second.job_epoch);
  order.mutable_ack()->set_number(ack.number());
  Send(found->second, std::move(order));
}

void Workers::AskAgain() {
  for (auto& [id, worker] : workers_) {
    if (worker.stream == nullptr) continue;
    v1::RankOrder order;
    order.set_worker_id(id);
    order.set_job_id(worker.job());
    order.set_job_epoch(worker.job_epoch);
    order.mutable_resend();
    Send(worker, std::move(order));
  }
}

v1::RankOrder Workers::BecomeOrder(const Worker& worker) {
  v1::RankOrder order;
  order.set_worker_id(worker.id());
  order.set_job_id(worker.job());
  order.mutable_become()->set_secret(worker.record.start().secret());
  return order;
}

void Workers::Send(Worker& worker, v1::RankOrder order) {
  if (worker.exited) return;
  if (worker.stream != nullptr) {
    if (worker.stream->Send(order)) return;
    spdlog::warn("event=rank_reads_too_slowly worker={} job={}", worker.id(), worker.job());
    std::exchange(worker.stream, nullptr)
        ->Abandon(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                               "orders are not read; attach again"));
  }
  if (!worker.orders.Add(std::move(order))) {
    spdlog::warn("event=order_dropped worker={} job={} bound={}", worker.id(), worker.job(),
                 OrderBuffer::kBound);
  }
}

absl::Status Workers::Attach(const v1::RankReport& hello, std::shared_ptr<RankStream> stream) {
  absl::Status of_spare;
  if (hello.has_hello() && spares_.Attach(hello, stream, of_spare)) return of_spare;
  const auto found = workers_.find(IdOf(hello.worker_id()));
  // A spare that was used while it was not attached does not know yet whom it has become.
  const bool as_spare = found != workers_.end() && found->first != hello.worker_id();
  if (!hello.has_hello() || found == workers_.end() || found->second.job() != hello.job_id() ||
      !SecretsEqual(
          as_spare ? found->second.record.process_secret() : found->second.record.start().secret(),
          hello.hello().secret())) {
    return absl::PermissionDeniedError(
        fmt::format("the first message must be the Hello of a worker of this agent, with its "
                    "secret; worker '{}' of job '{}' showed none that fits",
                    hello.worker_id(), hello.job_id()));
  }
  Worker& worker = found->second;
  if (worker.stream != nullptr) {
    worker.stream->Abandon(
        grpc::Status(grpc::StatusCode::ABORTED, "the worker attached a second time"));
  }
  worker.stream = std::move(stream);
  spdlog::info("event=rank_attached worker={} job={} pid={}", worker.id(), worker.job(),
               worker.record.pid());
  std::deque<v1::RankOrder> orders = worker.orders.Take();
  std::erase_if(orders, [](const v1::RankOrder& order) { return order.has_become(); });
  if (as_spare) Send(worker, BecomeOrder(worker));
  for (v1::RankOrder& order : orders) Send(worker, std::move(order));
  return absl::OkStatus();
}

void Workers::Detach(std::string_view worker_id, const RankStream* stream) {
  spares_.Detach(worker_id, stream);
  const auto found = workers_.find(IdOf(worker_id));
  if (found == workers_.end() || found->second.stream.get() != stream) return;
  found->second.stream = nullptr;
  if (found->second.exited) ReportExit(found->first);
}

void Workers::NoteReport(const v1::RankReport& report) {
  const auto found = workers_.find(report.worker_id());
  if (found == workers_.end()) return;
  found->second.job_epoch = std::max(found->second.job_epoch, report.job_epoch());
  if (report.has_step()) spares_.Keep(found->second.record.start());
}

absl::Status Workers::CheckMember(std::string_view worker_id, std::string_view job_id) const {
  const auto found = workers_.find(worker_id);
  if (found != workers_.end() && found->second.job() == job_id) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("this agent runs no worker '{}' of job '{}'", worker_id, job_id));
}

void Workers::ExitKnown(const v1::WorkerExited& exited) {
  const std::string& id = exited.worker_id();
  if (!IsFileId(id) || workers_.contains(id)) return;
  const auto folder = folders_.extract(id);
  state_.DropRecord(folder.empty() ? id : folder.mapped());
}

std::vector<v1::LiveWorker> Workers::Live() const {
  std::vector<v1::LiveWorker> live;
  for (const auto& [id, worker] : workers_) {
    v1::LiveWorker& entry = live.emplace_back();
    entry.set_worker_id(id);
    entry.set_job_id(worker.job());
    entry.set_pid(worker.record.pid());
    *entry.mutable_devices() = worker.record.start().devices();
    entry.set_attached(worker.stream != nullptr);
  }
  return live;
}

void Workers::OnProcessExit(const std::string& process_id, const process::Exit& exit) {
  if (spares_.OnExit(process_id)) return;
  const std::string worker_id = IdOf(process_id);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.exit_observed = Clock::now();
  v1::WorkerExited& exited = worker.exited.emplace();
  exited.set_worker_id(worker_id);
  exited.set_job_id(worker.job());
  exited.set_exit_code(exit.code);
  exited.set_signal(exit.signal);
  exited.set_adopted(!exit.known);
  if (!worker.exit_ordered) StopPeers(worker);  // First of all: they block on the dead one.
  exited.set_log_tail(ReadTail(state_.log_of(process_id), kLogTailBytes));
  spdlog::info("event=worker_exited worker={} job={} pid={} cause={} code={}", worker_id,
               worker.job(), worker.record.pid(), ExitCause(exited), exited.exit_code());
  *worker.record.mutable_exited() = exited;
  if (absl::Status written = state_.WriteRecord(worker.record); !written.ok()) {
    spdlog::error("event=worker_record_failed worker={} error=\"{}\"", worker_id,
                  std::string(written.message()));
  }
  if (worker.stream == nullptr) return ReportExit(worker_id);
  worker.last_words_limit = std::make_unique<asio::steady_timer>(io_, kLastWords);
  worker.last_words_limit->async_wait([this, worker_id](boost::system::error_code cancelled) {
    if (!cancelled) ReportExit(worker_id);
  });
}

void Workers::StopPeers(const Worker& lost) {
  if (lost.job_epoch == 0) return;  // It was in no arrangement: nobody waits for it.
  for (auto& [id, peer] : workers_) {
    // A peer in a later arrangement does not depend on the lost one.
    if (id == lost.id() || peer.job() != lost.job() || peer.stream == nullptr || peer.exited ||
        peer.exit_ordered || peer.job_epoch > lost.job_epoch) {
      continue;
    }
    v1::RankOrder order;
    order.set_worker_id(id);
    order.set_job_id(lost.job());
    order.set_job_epoch(lost.job_epoch);
    order.mutable_stop();
    Send(peer, std::move(order));
  }
}

void Workers::ReportExit(const std::string& worker_id) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  Worker worker = std::move(found->second);
  workers_.erase(found);
  if (worker.stream != nullptr) {
    worker.stream->Abandon(grpc::Status(grpc::StatusCode::ABORTED, "the worker has ended"));
  }
  on_exited_(*std::move(worker.exited), worker.exit_observed);
  const bool last = std::ranges::none_of(
      workers_, [&worker](const auto& entry) { return entry.second.job() == worker.job(); });
  if (last) spares_.JobLeft(worker.job(), worker.exit_ordered);
  if (workers_.empty() && all_killed_) {
    kill_limit_.cancel();
    std::exchange(all_killed_, nullptr)();
  }
}

void Workers::KillAll(std::chrono::milliseconds limit, std::function<void()> done) {
  spares_.KillAll();
  if (workers_.empty()) return asio::post(io_, std::move(done));
  all_killed_ = std::move(done);
  kill_limit_.expires_after(limit);
  kill_limit_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled || !all_killed_) return;
    spdlog::error("event=ranks_not_killed count={}", workers_.size());
    std::exchange(all_killed_, nullptr)();
  });
  for (auto& [id, worker] : workers_) {
    worker.exit_ordered = true;
    (void)worker.process->Signal(SIGKILL);  // NotFound: its exit is on the way.
  }
}

void Workers::DetachAll() {
  spares_.DetachAll();
  for (auto& [id, worker] : workers_) {
    if (worker.stream == nullptr) continue;
    std::exchange(worker.stream, nullptr)
        ->Abandon(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the agent is stopping"));
  }
}

}  // namespace tundish::agent
