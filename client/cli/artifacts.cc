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

std::string ArtifactTable(const v1::ListArtifactsResponse& response) {
  if (response.files().empty()) return "no artifacts\n";
  Table table({"KIND", "STEP", "SIZE", "PATH", "SHA-256"},
              {Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight});
  for (const v1::ArtifactFile& file : response.files()) {
    table.AddRow({file.kind(), fmt::format("{}", file.step()),
                  file.bytes() == 0 ? "-" : Bytes(file.bytes()), Printable(file.path()),
                  file.sha256()});
  }
  return table.ToString();
}

absl::StatusOr<int> Artifacts(const std::string& address, const Options& options) {
  v1::ListArtifactsRequest request;
  request.set_job_id(options.job);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::ListArtifactsResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::ListArtifacts, request);
  if (!response.ok()) return response.status();
  Print(options.json ? ToJson(*response) + "\n" : ArtifactTable(*response));
  return kSuccess;
}

}  // namespace

void AddArtifacts(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("artifacts", "List the files of a job");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Artifacts(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
