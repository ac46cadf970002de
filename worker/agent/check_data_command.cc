#include "worker/agent/check_data_command.h"

#include <cstdio>
#include <exception>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <absl/status/statusor.h>
#include <fmt/format.h>

#include "tundish/v1/agent_state.pb.h"
#include "worker/data/check.h"

namespace tundish::agent {

int RunCheckDataCommand(int threads) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // A check is its agent's; unlike a rank it is begun again.
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Image libraries may print to standard output: the result gets a descriptor of its own.
  const int output = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);

  v1::JobSpec spec;
  if (!spec.ParseFromFileDescriptor(STDIN_FILENO)) {
    fmt::print(stderr, "standard input is not a JobSpec message\n");
    return 2;
  }
  v1::CheckDataResult result;
  try {
    absl::StatusOr<v1::DataReport> report = data::CheckData(spec, threads);
    if (report.ok()) {
      *result.mutable_report() = *std::move(report);
    } else {
      result.set_error(std::string(report.status().message()));
    }
  } catch (const std::exception& error) {
    result.set_error(fmt::format("the data check failed unexpectedly: {}", error.what()));
  }
  return result.SerializeToFileDescriptor(output) ? 0 : 1;
}

}  // namespace tundish::agent
