#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

struct Options {
  std::string job;
  bool json = false;
};

std::string CheckpointTable(const v1::ListCheckpointsResponse& response) {
  if (response.checkpoints().empty()) return "no checkpoints\n";
  Table table({"STEP", "SIZE", "PATH BELOW THE ARTIFACT ROOT", "SHA-256 OF THE MANIFEST"},
              {Table::Align::kRight, Table::Align::kRight});
  for (const v1::Artifact& checkpoint : response.checkpoints()) {
    table.AddRow({fmt::format("{}", checkpoint.step()), Bytes(checkpoint.bytes()),
                  Printable(checkpoint.path()),
                  checkpoint.damage().empty() ? checkpoint.sha256()
                                              : "damaged: " + Printable(checkpoint.damage())});
  }
  return table.ToString();
}

absl::StatusOr<int> Checkpoints(const std::string& address, const Options& options) {
  v1::ListCheckpointsRequest request;
  request.set_job_id(options.job);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::ListCheckpointsResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::ListCheckpoints, request);
  if (!response.ok()) return response.status();
  Print(options.json ? ToJson(*response) + "\n" : CheckpointTable(*response));
  return kSuccess;
}

}  // namespace

void AddCheckpoints(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("checkpoints", "List a job's checkpoints");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] {
      return Checkpoints(invocation.coordinator, *options);
    };
  });
}

}  // namespace tundish::client
