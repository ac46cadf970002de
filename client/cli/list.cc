#include <memory>
#include <vector>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/coordinator.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

struct Options {
  std::vector<std::string> states;
  std::string tenant;
  uint32_t limit = 100;
  bool json = false;
};

std::string JobTable(const v1::ListJobsResponse& response) {
  if (response.jobs().empty()) return "no jobs\n";
  Table table(
      {"JOB", "NAME", "STATE", "STEP", "SUBMITTED", "REASON"},
      {Table::Align::kLeft, Table::Align::kLeft, Table::Align::kLeft, Table::Align::kRight});
  for (const v1::Job& job : response.jobs()) {
    table.AddRow({job.job_id(), Printable(job.spec().name()), v1::JobState_Name(job.state()),
                  fmt::format("{}/{}", job.step(), job.total_steps()), DateTime(job.submitted()),
                  Printable(job.reason())});
  }
  return table.ToString();
}

absl::StatusOr<int> List(const std::string& address, const Options& options) {
  v1::ListJobsRequest request;
  for (const std::string& name : options.states) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    v1::JobState_Parse(name, &state);  // The parser let only state names through.
    request.add_states(state);
  }
  request.set_tenant(options.tenant);
  request.set_limit(options.limit);
  Coordinator coordinator(address);
  const absl::StatusOr<v1::ListJobsResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::ListJobs, request);
  if (!response.ok()) return response.status();
  Print(options.json ? ToJson(*response) + "\n" : JobTable(*response));
  return kSuccess;
}

}  // namespace

void AddList(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("list", "List jobs, newest first");
  std::vector<std::string> names;
  for (int i = 1; i < v1::JobState_descriptor()->value_count(); ++i) {
    names.push_back(v1::JobState_descriptor()->value(i)->name());
  }
  command.add_option("--state", options->states, "Only jobs in this state; may be repeated")
      ->transform(CLI::IsMember(names, CLI::ignore_case))
      ->expected(1)
      ->take_all();
  command.add_option("--tenant", options->tenant, "Only jobs of this tenant");
  command.add_option("--limit", options->limit, "At most this many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return List(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
