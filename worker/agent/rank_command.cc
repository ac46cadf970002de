#include "worker/agent/rank_command.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tundish::agent {

std::vector<std::string> FirstArguments(const std::string& process_id, const StateDir& state) {
  return {"--agent", "unix:" + state.socket().string(), "--worker-id", process_id};
}

std::string ValueOf(std::string_view flag, const std::vector<std::string>& arguments) {
  const auto found = std::ranges::find(arguments, flag);
  return found == arguments.end() || found + 1 == arguments.end() ? "" : *(found + 1);
}

process::Command RankCommand(const v1::WorkerRecord& record, const std::string& binary,
                             const StateDir& state) {
  const v1::StartWorker& start = record.start();
  const std::string& id = ProcessId(record);
  process::Command command{
      .program = binary,
      .arguments = FirstArguments(id, state),
      // What libraries and the dynamic linker are steered by; not the agent's own secrets.
      .environment = process::InheritedEnvironment(
          {"PATH",   "HOME",   "LANG",          "LC_*",   "TZ",       "TMPDIR", "LD_LIBRARY_PATH",
           "OMP_*",  "KMP_*",  "MKL_*",         "ATEN_*", "TORCH_*",  "CUDA_*", "NVIDIA_*",
           "NCCL_*", "GLOO_*", "NEURON_*",      "GRPC_*", "MALLOC_*", "ASAN_*", "UBSAN_*",
           "TSAN_*", "LSAN_*", "TUNDISH_RANK_*"}),
      .stdout_file = state.log_of(id),
      .stderr_file = state.log_of(id),
  };
  command.arguments.insert(command.arguments.end(), {"--job-id", start.job_id(), "--threads",
                                                     std::to_string(start.threads())});
  if (record.spare()) {
    command.arguments.emplace_back("--spare");
    command.environment.push_back("TUNDISH_WORKER_SECRET=" + record.process_secret());
  } else {
    command.arguments.insert(command.arguments.end(),
                             {"--devices", fmt::format("{}", fmt::join(start.devices(), ","))});
    command.environment.push_back("TUNDISH_WORKER_SECRET=" + start.secret());
  }
  return command;
}

void SetProcess(const process::Identity& identity, v1::WorkerRecord& record) {
  record.set_pid(static_cast<uint32_t>(identity.pid));
  record.set_start_ticks(identity.start_ticks);
  record.set_boot_id(identity.boot_id);
}

}  // namespace tundish::agent
