#include <filesystem>
#include <memory>
#include <unistd.h>

#include <fmt/core.h>

#include "client/cli/artifact_fetch.h"
#include "client/cli/checks.h"
#include "client/cli/command.h"
#include "client/cli/follow_display.h"
#include "client/render/format.h"
#include "client/render/json.h"
#include "worker/weights/atomic_file.h"
#include "worker/weights/model_config.h"
#include "worker/weights/vit_file.h"

namespace tundish::client {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostConfigBytes = 1 << 20;

struct Options {
  std::string job;
  std::string format;
  std::string output;
  bool force = false;
};

/// A file that is gone when its owner is.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

/// The job's newest model.
absl::StatusOr<v1::Artifact> FindModel(const v1::Job& job) {
  for (auto it = job.artifacts().rbegin(); it != job.artifacts().rend(); ++it) {
    if (it->kind() == "model") return *it;
  }
  return absl::NotFoundError(
      fmt::format("job {} has no model: it is {}; a model is written when a job "
                  "has succeeded",
                  job.job_id(), v1::JobState_Name(job.state())));
}

/// Writes `text` as `name` beside the output. Where that is another model's file it is left alone
/// and `<output's stem>.<name>` is written instead, which a notice says.
absl::Status WriteBeside(const Options& options, const std::string& name, const std::string& text) {
  const fs::path output(options.output);
  std::string path = (output.parent_path() / name).string();
  if (!options.force && fs::exists(path)) {
    const absl::StatusOr<std::string> there = weights::ReadSmallFile(path, kMostConfigBytes);
    if (!there.ok() || *there != text) {
      const std::string own =
          (output.parent_path() / fmt::format("{}.{}", output.stem().string(), name)).string();
      PrintNotice(fmt::format("{} belongs to another model and is left alone; this one's is {}",
                              path, own));
      path = own;
    }
  }
  return weights::WriteFileAtomically(path, text);
}

absl::Status WriteTimm(const Options& options, const std::string& model,
                       const std::string& config) {
  if (absl::Status beside = WriteBeside(options, "config.json", config); !beside.ok())
    return beside;
  std::error_code error;
  fs::rename(model, options.output, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{}: {}", options.output, error.message()));
}

absl::Status WriteHuggingFace(const Options& options, const std::string& model,
                              const std::string& timm_config) {
  const absl::StatusOr<weights::ModelConfig> config = weights::ParseTimmConfig(timm_config);
  if (!config.ok()) return config.status();
  const absl::StatusOr<std::string> json = weights::HuggingFaceConfigJson(*config);
  if (!json.ok()) return json.status();
  if (absl::Status beside = WriteBeside(options, "config.json", *json); !beside.ok()) return beside;
  if (absl::Status beside = WriteBeside(options, "preprocessor_config.json",
                                        weights::HuggingFacePreprocessorJson(*config));
      !beside.ok()) {
    return beside;
  }
  return weights::ConvertVitFile(model, options.output, weights::Layout::kHuggingFace);
}

absl::StatusOr<int> Export(const std::string& address, const Options& options) {
  Coordinator coordinator(address);
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, options.job);
  if (!job.ok()) return job.status();
  const absl::StatusOr<v1::Artifact> model = FindModel(*job);
  if (!model.ok()) return model.status();

  const TemporaryFile weights_file(fmt::format("{}.partial-{}", options.output, getpid()));
  const TemporaryFile config_file(fmt::format("{}.config-{}", options.output, getpid()));
  const absl::StatusOr<FetchedFile> fetched =
      FetchArtifact(coordinator, job->job_id(), model->path(), weights_file.path(), model->bytes());
  if (!fetched.ok()) return fetched.status();
  if (fetched->sha256 != model->sha256()) {
    return absl::DataLossError(fmt::format("{} arrived with SHA-256 {}, the job recorded {}",
                                           model->path(), fetched->sha256, model->sha256()));
  }
  const std::string config_path = (fs::path(model->path()).parent_path() / "config.json").string();
  if (const auto config = FetchArtifact(coordinator, job->job_id(), config_path, config_file.path(),
                                        kMostConfigBytes);
      !config.ok()) {
    return config.status();
  }
  const absl::StatusOr<std::string> config =
      weights::ReadSmallFile(config_file.path(), kMostConfigBytes);
  if (!config.ok()) return config.status();

  const absl::Status written = options.format == "timm"
                                   ? WriteTimm(options, weights_file.path(), *config)
                                   : WriteHuggingFace(options, weights_file.path(), *config);
  if (!written.ok()) return written;
  const absl::StatusOr<FetchedFile> result = HashFile(options.output);
  if (!result.ok()) return result.status();
  Print(fmt::format("{}  {}\n", result->sha256, fs::absolute(options.output).string()));
  return kSuccess;
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand(
      "export",
      "Fetch a job's model, with its config.json beside it, and print its SHA-256 and path");
  command.add_option("JOB", options->job, "Id, or its first 6 or more characters")->required();
  command.add_option("--format", options->format, "Key layout: timm or hf (Hugging Face)")
      ->check(CLI::IsMember({"timm", "hf"}))
      ->required();
  command.add_option("--output", options->output, "The safetensors file to write")
      ->check(CheckNotEmpty)
      ->required();
  command.add_flag(
      "--force", options->force,
      "Overwrite another model's config.json beside it instead of choosing another name");
  command.callback([&invocation, options] {
    invocation.run = [&invocation, options] { return Export(invocation.coordinator, *options); };
  });
}

}  // namespace tundish::client
