#include <algorithm>
#include <signal.h>

#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "worker/agent/rank_command.h"
#include "worker/agent/workers.h"

// What an agent does with the processes of the agent before it.
namespace tundish::agent {

using Clock = std::chrono::steady_clock;

absl::Status Workers::AdoptRecorded() {
  auto records = state_.ReadRecords();
  if (!records.ok()) return records.status();
  for (v1::WorkerRecord& record : *records) {
    const std::string id = record.start().worker_id();
    if (absl::Status adopted = AdoptOne(std::move(record)); !adopted.ok()) {
      return absl::InternalError(fmt::format("cannot tell whether worker '{}' still runs: {}", id,
                                             std::string(adopted.message())));
    }
  }
  for (const std::string& job : spares_.Jobs()) {
    const bool trains = std::ranges::any_of(
        workers_, [&job](const auto& entry) { return entry.second.job() == job; });
    if (!trains) spares_.JobLeft(job, false);
  }
  return absl::OkStatus();
}

absl::Status Workers::AdoptOne(v1::WorkerRecord record) {
  const std::string id = record.start().worker_id();
  const std::string process_id = ProcessId(record);
  const bool readable = !record.start().secret().empty();
  if (process_id != id && !record.spare()) folders_[id] = process_id;
  if (record.pid() == 0) {
    if (absl::Status found = FindProcess(record); !found.ok()) return found;
  }
  const std::string job = record.start().job_id();
  if (!record.has_exited() && record.pid() != 0) {
    const process::Identity identity{.pid = static_cast<pid_t>(record.pid()),
                                     .start_ticks = record.start_ticks(),
                                     .boot_id = record.boot_id()};
    auto process = process::Process::Adopt(io_.get_executor(), identity, ExitHandler(process_id));
    if (process.ok() && record.spare()) {
      spdlog::info("event=spare_adopted spare={} job={} pid={}", process_id, job, record.pid());
      spares_.Insert(std::move(record), *std::move(process));
      return absl::OkStatus();
    }
    if (process.ok()) {
      // Without its secret it could never attach; its device is free once its exit is reported.
      if (!readable) (void)(*process)->Signal(SIGKILL);
      spdlog::info("event={} worker={} job={} pid={}",
                   readable ? "worker_adopted" : "worker_killed", id, job, record.pid());
      Insert(std::move(record), *std::move(process), true);
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(process.status())) return process.status();
  }
  if (record.spare()) {
    state_.DropRecord(process_id);
    return absl::OkStatus();
  }
  v1::WorkerExited exited = record.exited();
  if (!record.has_exited()) {
    exited.set_worker_id(id);
    exited.set_job_id(job);
    exited.set_adopted(true);
    exited.set_log_tail(ReadTail(state_.log_of(process_id), kLogTailBytes));
  }
  spdlog::info("event=worker_gone worker={} job={} pid={}", id, job, record.pid());
  on_exited_(std::move(exited), Clock::now());
  return absl::OkStatus();
}

absl::Status Workers::FindProcess(v1::WorkerRecord& record) {
  v1::StartWorker& start = *record.mutable_start();
  const auto found = process::FindSpawned(FirstArguments(ProcessId(record), state_));
  if (!found.ok()) return found.status();
  if (!*found) return absl::OkStatus();
  SetProcess((*found)->identity, record);
  if (!start.job_id().empty()) {
    // Should it fail, the next agent searches as well.
    (void)state_.WriteRecord(record);
  } else {
    start.set_job_id(ValueOf("--job-id", (*found)->arguments));
    const std::string devices = ValueOf("--devices", (*found)->arguments);
    const std::vector<std::string> names = absl::StrSplit(devices, ',');
    for (const std::string& device : names) {
      start.add_devices(device);
    }
  }
  return absl::OkStatus();
}

}  // namespace tundish::agent
