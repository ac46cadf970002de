#include "worker/agent/data_checks.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <system_error>

#include <absl/status/statusor.h>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "tundish/v1/agent_state.pb.h"
#include "worker/agent/state_dir.h"

namespace tundish::agent {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr size_t kLogTailBytes = 1024;
/// A report names at most 1000 files; no honest one comes near this.
constexpr uintmax_t kResultBoundBytes = 16 << 20;

/// Processes the kernel has ended for want of memory since the host started.
uint64_t OutOfMemoryKills() {
  std::ifstream statistics("/proc/vmstat");
  std::string name;
  for (uint64_t count = 0; statistics >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

/// No decoder raises SIGKILL: it comes from outside the process.
std::string DescribeKill(bool memory_ran_out) {
  return memory_ran_out
             ? "was killed (signal 9) while the kernel ended processes for want of memory; free "
               "memory on the host or raise its limit"
             : "was killed (signal 9) from outside: by an operator, a supervisor or a limit of the "
               "host; no image is to blame";
}

}  // namespace

struct DataChecks::Check {
  Check(asio::io_context& io, v1::RunTask task) : task(std::move(task)), limit(io) {}

  v1::RunTask task;
  asio::steady_timer limit;
  bool over_limit = false;
  std::unique_ptr<process::Process> process;
  /// Of the host, when the check began.
  uint64_t memory_kills_before = 0;
};

DataChecks::DataChecks(asio::io_context& io, Options options, OnResult on_result)
    : io_(io), options_(std::move(options)), on_result_(std::move(on_result)) {}

DataChecks::~DataChecks() {
  for (const auto& [id, check] : running_) (void)check->process->Signal(SIGKILL);
}

fs::path DataChecks::FileOf(const std::string& task_id, const char* suffix) const {
  return options_.folder / (task_id + suffix);
}

void DataChecks::Run(v1::RunTask task) {
  const bool known = running_.contains(task.task_id()) ||
                     std::ranges::any_of(waiting_, [&](const v1::RunTask& other) {
                       return other.task_id() == task.task_id();
                     });
  if (known) return;
  waiting_.push_back(std::move(task));
  StartNext();
}

void DataChecks::StartNext() {
  while (!waiting_.empty() && running_.size() < options_.parallel) {
    v1::RunTask task = std::move(waiting_.front());
    waiting_.pop_front();
    Start(std::move(task));
  }
}

void DataChecks::Start(v1::RunTask task) {
  const std::string id = task.task_id();
  v1::TaskResult failed;
  if (!IsFileId(id) || !task.has_check_data()) {
    failed.set_error(fmt::format("task '{}' is no data check with an id of [A-Za-z0-9_-]", id));
    return Finish(task, std::move(failed));
  }
  const fs::path spec = FileOf(id, ".spec");
  if (std::ofstream file(spec, std::ios::binary | std::ios::trunc);
      !task.check_data().SerializeToOstream(&file) || !file.flush()) {
    failed.set_error(fmt::format("cannot write '{}' for the data check", spec.string()));
    return Finish(task, std::move(failed));
  }
  for (const char* suffix : {".result", ".log"}) {  // They are appended to.
    std::error_code ignored;
    fs::remove(FileOf(id, suffix), ignored);
  }
  const process::Command command{
      .program = options_.command.front(),
      .arguments = {options_.command.begin() + 1, options_.command.end()},
      .environment = process::InheritedEnvironment(
          {"PATH", "LANG", "LC_*", "ASAN_*", "UBSAN_*", "TUNDISH_DATA_ROOTS"}),
      .stdin_file = spec,
      .stdout_file = FileOf(id, ".result"),
      .stderr_file = FileOf(id, ".log")};
  auto check = std::make_unique<Check>(io_, task);
  check->memory_kills_before = OutOfMemoryKills();
  auto process = process::Process::Start(
      io_.get_executor(), command, [this, id](const process::Exit& exit) { OnExit(id, exit); });
  if (!process.ok()) {
    failed.set_error(std::string(process.status().message()));
    return Finish(task, std::move(failed));
  }
  check->process = *std::move(process);
  check->limit.expires_after(options_.limit);
  check->limit.async_wait([running = check.get()](boost::system::error_code cancelled) {
    if (cancelled) return;  // Also when the check is gone.
    running->over_limit = true;
    (void)running->process->Signal(SIGKILL);
  });
  spdlog::info("event=data_check_started task={} job={} pid={}", id, task.job_id(),
               check->process->identity().pid);
  running_[id] = std::move(check);
}

v1::TaskResult DataChecks::ReadResult(const Check& check, const process::Exit& exit) const {
  v1::TaskResult result;
  const std::string& id = check.task.task_id();
  if (check.over_limit) {
    result.set_error(fmt::format("the data check took longer than its limit of {} s and was ended",
                                 std::chrono::duration<double>(options_.limit).count()));
    return result;
  }
  const fs::path file = FileOf(id, ".result");
  std::error_code unreadable;
  const bool bounded = fs::file_size(file, unreadable) <= kResultBoundBytes && !unreadable;
  v1::CheckDataResult written;
  std::ifstream stream(file, std::ios::binary);
  if (exit.known && exit.signal == 0 && exit.code == 0 && bounded &&
      written.ParseFromIstream(&stream) && (written.has_report() || !written.error().empty())) {
    result.set_error(written.error());
    if (written.error().empty())
      *result.mutable_data_report() = std::move(*written.mutable_report());
    return result;
  }
  const std::string end =
      exit.signal == SIGKILL ? DescribeKill(OutOfMemoryKills() > check.memory_kills_before)
      : exit.signal > 0
          ? fmt::format(
                "was ended by signal {}; an image of the data set is likely damaged in a way "
                "that a decoder does not survive",
                exit.signal)
          : fmt::format("ended with exit code {} and without a result", exit.code);
  std::string log = ReadTail(FileOf(id, ".log"), kLogTailBytes);
  std::ranges::replace(log, '\n', ' ');
  result.set_error(fmt::format("the data check crashed: its process {}{}{}", end,
                               log.empty() ? "" : "; it last wrote: ", log));
  return result;
}

void DataChecks::OnExit(const std::string& task_id, const process::Exit& exit) {
  const auto found = running_.find(task_id);
  if (found == running_.end()) return;
  const std::unique_ptr<Check> check = std::move(found->second);
  running_.erase(found);
  Finish(check->task, ReadResult(*check, exit));
  StartNext();
}

void DataChecks::Finish(const v1::RunTask& task, v1::TaskResult result) {
  result.set_task_id(task.task_id());
  result.set_job_id(task.job_id());
  if (IsFileId(task.task_id())) {
    for (const char* suffix : {".spec", ".result", ".log"}) {
      std::error_code ignored;  // A file left behind is overwritten or never read.
      fs::remove(FileOf(task.task_id(), suffix), ignored);
    }
  }
  spdlog::info("event=data_check_done task={} job={} error=\"{}\"", task.task_id(), task.job_id(),
               result.error());
  on_result_(std::move(result));
}

}  // namespace tundish::agent
