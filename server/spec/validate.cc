#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "server/spec/defaults.h"
#include "server/spec/field_checks.h"
#include "server/spec/presets.h"
#include "server/spec/resolve.h"

namespace tundish::spec {
namespace {

constexpr int kMostRanks = 4096;
constexpr int kMostClasses = 10000;
constexpr std::int64_t kMostTokens = 65536;

/// "1, 2 or 4": the degrees that divide all of `numbers`.
std::string CommonDivisors(std::int32_t a, std::int32_t b) {
  std::vector<int> divisors;
  for (int d = 1; d <= std::min({a, b, kMostRanks}); ++d) {
    if (a % d == 0 && b % d == 0) divisors.push_back(d);
  }
  if (divisors.size() == 1) return "1";
  const int last = divisors.back();
  divisors.pop_back();
  return fmt::format("{} or {}", fmt::join(divisors, ", "), last);
}

void CheckClasses(FieldChecks& checks, const v1::DataSpec& data) {
  checks.Require(data.classes_size() != 1 && data.classes_size() <= kMostClasses, "data.classes",
                 std::to_string(data.classes_size()) + " names",
                 fmt::format("none (the names found) or 2 to {}", kMostClasses));
  if (data.classes_size() > kMostClasses) return;
  std::unordered_set<std::string> seen;
  for (const std::string& name : data.classes()) {
    if (name.empty() || name.size() > 128 || name.find('/') != std::string::npos) {
      checks.Require(false, "data.classes", name, "names of 1 to 128 bytes without /");
    } else {
      checks.Require(seen.insert(name).second, "data.classes", name, "each name once");
    }
  }
}

void CheckChannels(FieldChecks& checks, const v1::DataSpec& data, int channels) {
  const auto fits = [&](int size) { return size == 1 || size == channels; };
  const std::string expected =
      channels == 1 ? "one value" : fmt::format("one value, or {} (one per channel)", channels);
  checks.Require(fits(data.mean_size()), "data.mean", std::to_string(data.mean_size()) + " values",
                 expected);
  for (const float mean : data.mean()) checks.Range("data.mean", mean, 0.0f, 1.0f);
  checks.Require(fits(data.std_size()), "data.std", std::to_string(data.std_size()) + " values",
                 expected);
  for (const float std : data.std()) checks.Range("data.std", std, 0.001f, 10.0f);
}

void CheckData(FieldChecks& checks, const v1::DataSpec& data, int channels) {
  switch (data.source_case()) {
    case v1::DataSpec::kFolder:
      checks.AbsolutePath("data.folder", data.folder());
      break;
    case v1::DataSpec::kManifest:
      checks.AbsolutePath("data.manifest", data.manifest());
      checks.Require(data.manifest().ends_with(".csv") || data.manifest().ends_with(".jsonl"),
                     "data.manifest", data.manifest(), "a file that ends in .csv or .jsonl");
      break;
    case v1::DataSpec::SOURCE_NOT_SET:
      checks.Require(false, "data", "", "folder or manifest: where the images are");
  }
  checks.Range("data.validation_fraction", data.validation_fraction(), 0.0, 0.9);
  CheckClasses(checks, data);
  checks.Known("data.bad_files", data.bad_files());
  if (data.has_max_bad_fraction()) {
    checks.Range("data.max_bad_fraction", data.max_bad_fraction(), 0.0, 1.0);
    checks.Require(
        data.bad_files() != v1::FAIL, "data.max_bad_fraction",
        fmt::format("{}", data.max_bad_fraction()),
        "to be left out, or data.bad_files: SKIP (with FAIL the first bad file ends it)");
  }
  checks.Range("data.augment.min_crop_area", data.augment().min_crop_area(), 0.01f, 1.0f);
  checks.Range("data.augment.brightness", data.augment().brightness(), 0.0f, 0.9f);
  checks.Range("data.augment.contrast", data.augment().contrast(), 0.0f, 0.9f);
  CheckChannels(checks, data, channels);
}

void CheckImageSize(FieldChecks& checks, const v1::ModelSpec& model) {
  checks.Range("model.image_size", model.image_size(), 1, 8192);
  checks.Range("model.patch_size", model.patch_size(), 1, 256);
  if (model.patch_size() < 1 || model.image_size() < 1) return;
  const int below = model.image_size() / model.patch_size() * model.patch_size();
  checks.Require(model.image_size() % model.patch_size() == 0, "model.image_size",
                 std::to_string(model.image_size()),
                 fmt::format("a multiple of model.patch_size={}, e.g. {}", model.patch_size(),
                             below > 0 ? below : model.patch_size()));
  const std::int64_t side = model.image_size() / model.patch_size();
  checks.Require(
      side * side < kMostTokens, "model.patch_size", std::to_string(model.patch_size()),
      fmt::format("fewer than {} patches per image, these are {}", kMostTokens, side * side));
}

void CheckModel(FieldChecks& checks, const v1::ModelSpec& model) {
  const bool known = model.preset().empty() || FindPreset(model.preset()).has_value();
  checks.Require(known, "model.preset", model.preset(),
                 fmt::format("one of {}", fmt::join(PresetNames(), ", ")));
  const bool shapeless = model.image_size() == 0 && model.patch_size() == 0 &&
                         model.hidden() == 0 && model.depth() == 0 && model.heads() == 0;
  if (shapeless) {
    // One sentence instead of five about fields nobody meant to write.
    checks.Require(!known || !model.preset().empty(), "model", "",
                   "a preset such as vit_small_patch16, or image_size, patch_size, hidden, depth "
                   "and heads");
  } else {
    CheckImageSize(checks, model);
    checks.Range("model.hidden", model.hidden(), 1, 16384);
    checks.Range("model.depth", model.depth(), 1, 256);
    checks.Range("model.heads", model.heads(), 1, 256);
    checks.Range("model.mlp_hidden", model.mlp_hidden(), 1, 131072);
    checks.Require(model.heads() < 1 || model.hidden() % model.heads() == 0, "model.hidden",
                   std::to_string(model.hidden()),
                   fmt::format("a multiple of model.heads={}", model.heads()));
  }
  checks.Require(model.channels() == 1 || model.channels() == 3, "model.channels",
                 std::to_string(model.channels()), "1 (grey) or 3 (colour)");
  checks.Known("model.pooling", model.pooling());
  checks.Range("model.drop_path_rate", model.drop_path_rate(), 0.0f, 0.9f);
  checks.Range("model.layer_norm_eps", model.layer_norm_eps(), 1e-12, 1e-2);
  if (!model.weights().empty()) {
    checks.AbsolutePath("model.weights", model.weights());
    checks.Require(model.weights().ends_with(".safetensors"), "model.weights", model.weights(),
                   "a .safetensors file");
  }
}

void CheckParallel(FieldChecks& checks, const v1::JobSpec& spec) {
  const v1::ParallelSpec& parallel = spec.parallel();
  checks.Range("parallel.tensor", parallel.tensor(), 1, kMostRanks);
  checks.Range("parallel.data", parallel.data(), 1, kMostRanks);
  const std::int64_t ranks = std::int64_t{parallel.tensor()} * parallel.data();
  if (parallel.tensor() >= 1 && parallel.tensor() <= kMostRanks && parallel.data() >= 1 &&
      parallel.data() <= kMostRanks) {
    checks.Require(ranks <= kMostRanks, "parallel.data", std::to_string(parallel.data()),
                   fmt::format("at most {} ranks in all, these are {}", kMostRanks, ranks));
  }
  checks.Require(parallel.device() == "cpu" || parallel.device() == "cuda", "parallel.device",
                 parallel.device(), "cpu or cuda");
  checks.Range("parallel.threads_per_rank", parallel.threads_per_rank(), 1, 256);
}

/// Heads and MLP are cut by the tensor degree: the two errors a newcomer meets first.
void CheckCut(FieldChecks& checks, const v1::JobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const int tensor = spec.parallel().tensor();
  if (tensor < 1 || model.heads() < 1 || model.mlp_hidden() < 1) return;
  const std::string expected =
      fmt::format("to divide by parallel.tensor={}: use a tensor of {}", tensor,
                  CommonDivisors(model.heads(), model.mlp_hidden()));
  checks.Require(model.heads() % tensor == 0, "model.heads", std::to_string(model.heads()),
                 expected);
  checks.Require(model.mlp_hidden() % tensor == 0, "model.mlp_hidden",
                 std::to_string(model.mlp_hidden()), expected);
}

void CheckOptimizer(FieldChecks& checks, const v1::OptimizerSpec& optimizer) {
  const double rate = optimizer.learning_rate();
  checks.Require(rate > 0 && rate <= 10, "training.optimizer.learning_rate",
                 fmt::format("{}", rate), "more than 0, at most 10");
  checks.Range("training.optimizer.weight_decay", optimizer.weight_decay(), 0.0, 10.0);
  for (const auto& [field, beta] : {std::pair{"training.optimizer.beta1", optimizer.beta1()},
                                    std::pair{"training.optimizer.beta2", optimizer.beta2()}}) {
    checks.Require(beta >= 0 && beta < 1, field, fmt::format("{}", beta), "at least 0, below 1");
  }
  checks.Range("training.optimizer.eps", optimizer.eps(), 1e-16, 1.0);
  checks.Range("training.optimizer.clip_norm", optimizer.clip_norm(), 0.0, 1e9);
}

void CheckTraining(FieldChecks& checks, const v1::JobSpec& spec) {
  const v1::TrainingSpec& training = spec.training();
  checks.Require((training.epochs() == 0) != (training.steps() == 0), "training",
                 fmt::format("epochs {} and steps {}", training.epochs(), training.steps()),
                 "exactly one of epochs and steps");
  if (training.epochs() != 0) checks.Range("training.epochs", training.epochs(), 1u, 100000u);
  const std::uint32_t batch = training.global_batch();
  checks.Range("training.global_batch", batch, 1u, 1048576u);
  const int data = spec.parallel().data();
  if (data >= 1 && batch >= 1 && batch <= 1048576) {
    checks.Require(batch >= static_cast<std::uint32_t>(data), "training.global_batch",
                   std::to_string(batch),
                   fmt::format("at least one sample per replica, parallel.data={}", data));
    const std::uint32_t most = (batch + data - 1) / data;
    checks.Require(training.micro_batch() >= 1 && training.micro_batch() <= most,
                   "training.micro_batch", std::to_string(training.micro_batch()),
                   fmt::format("1 to {} (global_batch {} over {} replicas)", most, batch, data));
  }
  checks.Known("training.precision", training.precision());
  CheckOptimizer(checks, training.optimizer());
  const v1::ScheduleSpec& schedule = training.schedule();
  checks.Known("training.schedule.kind", schedule.kind());
  if (training.steps() > 0) {
    checks.Range("training.schedule.warmup_steps", schedule.warmup_steps(), 0u, training.steps());
  }
  checks.Range("training.schedule.final_fraction", schedule.final_fraction(), 0.0, 1.0);
  checks.Known("training.class_weights", training.class_weights());
  checks.Range("training.label_smoothing", training.label_smoothing(), 0.0f, 0.5f);
}

}  // namespace

ValidationResult Validate(const v1::JobSpec& in) {
  ValidationResult result{.spec = in};
  v1::JobSpec& spec = result.spec;
  FillDefaults(spec);

  FieldChecks checks;
  checks.Label("name", spec.name());
  checks.Label("tenant", spec.tenant());
  checks.Range("priority", spec.priority(), -1000, 1000);
  CheckData(checks, spec.data(), spec.model().channels());
  CheckModel(checks, spec.model());
  CheckParallel(checks, spec);
  CheckCut(checks, spec);
  CheckTraining(checks, spec);
  checks.Range("checkpoints.keep_last", spec.checkpoints().keep_last(), 1u, 1000u);
  checks.Range("recovery.step_deadline_seconds", spec.recovery().step_deadline_seconds(), 1u,
               86400u);
  checks.Range("recovery.min_data", spec.recovery().min_data(), 1u,
               static_cast<std::uint32_t>(std::max(1, spec.parallel().data())));
  checks.Range("recovery.wait_seconds", spec.recovery().wait_seconds(), 1u, 86400u);
  checks.Range("recovery.warm_spares", spec.recovery().warm_spares(), 0u, 8u);
  result.invalid = std::move(checks).Take();
  return result;
}

absl::Status ValidationResult::ToStatus() const {
  if (invalid.empty()) return absl::OkStatus();
  std::string message;
  for (const v1::InvalidField& field : invalid) {
    if (!message.empty()) message += "; ";
    const std::string& expected = field.expected();
    if (field.value().empty()) {
      message += fmt::format("{} is missing: expected {}", field.field(), expected);
    } else if (expected.starts_with("to divide by ")) {
      message += fmt::format("{}={} does not {}", field.field(), field.value(), expected.substr(3));
    } else {
      message += fmt::format("{}={}: expected {}", field.field(), field.value(), expected);
    }
  }
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<v1::JobSpec> ResolveSpec(const v1::JobSpec& in) {
  ValidationResult result = Validate(in);
  if (absl::Status status = result.ToStatus(); !status.ok()) return status;
  return std::move(result.spec);
}

}  // namespace tundish::spec
