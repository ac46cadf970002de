#include <memory>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/cli/job_file.h"
#include "client/link/coordinator.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

struct Options {
  std::string file;
  bool json = false;
};

std::string PlanText(const v1::PlanJobResponse& response) {
  if (response.options().empty()) return "no way to run it was found\n";
  using Align = Table::Align;
  Table table(
      {"TENSOR", "DATA", "MICRO-BATCH", "ACCUMULATION", "FITS", "MEMORY/RANK", "OF", "GFLOP/IMAGE"},
      {Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft, Align::kRight,
       Align::kRight, Align::kRight});
  for (const v1::PlanOption& option : response.options()) {
    table.AddRow({fmt::format("{}", option.parallel().tensor()),
                  fmt::format("{}", option.parallel().data()),
                  fmt::format("{}", option.micro_batch()), fmt::format("{}", option.accumulation()),
                  option.fits() ? "yes" : "no", Bytes(option.memory_bytes()),
                  option.device_memory_bytes() > 0 ? Bytes(option.device_memory_bytes()) : "?",
                  fmt::format("{:.3g}", option.flops_per_image() / 1e9)});
  }
  std::string text = table.ToString();
  for (const v1::PlanOption& option : response.options()) {
    if (option.explanation().empty()) continue;
    text += fmt::format("{} x {}: {}\n", option.parallel().tensor(), option.parallel().data(),
                        Printable(option.explanation()));
  }
  return text;
}

absl::StatusOr<int> Plan(const std::string& address, const Options& options) {
  v1::PlanJobRequest request;
  if (absl::Status read = LoadJobFile(options.file, request.mutable_spec()); !read.ok()) {
    return read;
  }
  Coordinator coordinator(address);
  const absl::StatusOr<v1::PlanJobResponse> response =
      coordinator.Call(&v1::JobService::StubInterface::PlanJob, request);
  if (response.status().code() == absl::StatusCode::kInvalidArgument) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", options.file, std::string(response.status().message())));
  }
  if (!response.ok()) return response.status();
  Print(options.json ? ToJson(*response) + "\n" : PlanText(*response));
  return kSuccess;
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "plan", "Predict memory and cost of a job file on the cluster, without submitting it");
  command.add_option("FILE", options->file, "Job file")->required();
  AddJsonOption(command, &options->json);
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Plan(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
