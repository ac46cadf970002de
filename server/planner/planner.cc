#include "server/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "server/planner/formulas.h"

namespace tundish::planner {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kAcceleratorOverhead = 1024 * kMiB;
constexpr std::uint64_t kCpuOverhead = 256 * kMiB;
constexpr std::size_t kMostOptions = 16;

int Classes(const v1::JobSpec& spec, int classes) {
  if (classes > 0) return classes;
  return spec.data().classes_size() > 0 ? spec.data().classes_size() : 2;
}

/// Samples one replica sees per step, at most.
std::uint32_t ReplicaBatch(const v1::JobSpec& spec) {
  const auto data = static_cast<std::uint32_t>(spec.parallel().data());
  return (spec.training().global_batch() + data - 1) / data;
}

std::string GiB(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
}

bool Fits(const v1::JobSpec& spec, const Ways& ways, std::uint64_t memory_bytes) {
  return memory_bytes == 0 || EstimateMemory(spec, 0, ways).total_bytes() <= memory_bytes;
}

/// The largest of batch, batch/2, batch/4 … that fits; 1 if none does.
std::uint32_t LargestMicroBatch(v1::JobSpec spec, const Ways& ways, std::uint64_t memory_bytes) {
  std::uint32_t micro = ReplicaBatch(spec);
  while (true) {
    spec.mutable_training()->set_micro_batch(micro);
    if (micro == 1 || Fits(spec, ways, memory_bytes)) return micro;
    micro = (micro + 1) / 2;
  }
}

std::vector<int> TensorDegrees(const v1::ModelSpec& model) {
  std::vector<int> degrees;
  for (int t = 1; t <= std::min(model.heads(), model.mlp_hidden()); ++t) {
    if (model.heads() % t == 0 && model.mlp_hidden() % t == 0) degrees.push_back(t);
  }
  return degrees;
}

std::string WouldFit(const v1::JobSpec& spec, std::uint64_t memory_bytes) {
  v1::JobSpec other = spec;
  const Ways ways = WaysOf(spec);
  const std::uint32_t micro = LargestMicroBatch(spec, ways, memory_bytes);
  other.mutable_training()->set_micro_batch(micro);
  if (micro < spec.training().micro_batch() && Fits(other, ways, memory_bytes)) {
    return fmt::format("training.micro_batch={} would fit", micro);
  }
  if (const Ways checkpointed{.checkpointing = true, .zero1 = ways.zero1};
      !ways.checkpointing && Fits(other, checkpointed, memory_bytes)) {
    return fmt::format("training.checkpoint_blocks=1 with training.micro_batch={} would fit",
                       micro);
  }
  for (const int tensor : TensorDegrees(spec.model())) {
    if (tensor <= spec.parallel().tensor()) continue;
    other.mutable_parallel()->set_tensor(tensor);
    if (Fits(other, ways, memory_bytes)) {
      return fmt::format("parallel.tensor={} with training.micro_batch={} would fit", tensor,
                         micro);
    }
  }
  return "no tensor degree that divides model.heads makes it fit: use a smaller model or images";
}

/// Why a rank does not fit; empty if it does.
std::string DoesNotFit(const v1::JobSpec& spec, const Ways& ways, std::uint64_t memory_bytes) {
  if (Fits(spec, ways, memory_bytes)) return "";
  const MemoryEstimate memory = EstimateMemory(spec, 0, ways);
  const std::pair<std::uint64_t, const char*> largest =
      std::max({std::pair{memory.parameter_bytes, "weights, gradients and AdamW"},
                std::pair{memory.activation_bytes, "activations"},
                std::pair{memory.overhead_bytes, "overhead"}});
  return fmt::format("a rank needs {}, its device has {}; the largest part is {} with {}; {}",
                     GiB(memory.total_bytes()), GiB(memory_bytes), largest.second,
                     GiB(largest.first), WouldFit(spec, memory_bytes));
}

/// Why `spec` cannot run on `pool`; empty if it can.
std::string Obstacle(const v1::JobSpec& spec, const Ways& ways, const DevicePool& pool) {
  const std::int64_t needed = std::int64_t{spec.parallel().tensor()} * spec.parallel().data();
  if (needed > pool.count) {
    return fmt::format("needs {} {} devices, the cluster has {}", needed, pool.kind, pool.count);
  }
  if (spec.parallel().tensor() > pool.largest_host) {
    return fmt::format("a tensor-parallel group of {} does not fit one host: the largest has {}",
                       spec.parallel().tensor(), pool.largest_host);
  }
  return DoesNotFit(spec, ways, pool.memory_bytes);
}

void AddTerm(v1::PlanOption& option, const char* name, double value, const char* unit,
             std::string formula) {
  v1::PlanTerm& term = *option.add_terms();
  term.set_name(name);
  term.set_value(value);
  term.set_unit(unit);
  term.set_formula(std::move(formula));
}

void AddMemoryTerms(v1::PlanOption& option, const v1::JobSpec& spec, const Ways& ways,
                    const MemoryEstimate& memory) {
  const int tensor = spec.parallel().tensor();
  const int data = spec.parallel().data();
  const v1::Precision precision = spec.training().precision();
  const int classes = Classes(spec, 0);
  AddTerm(
      option, "parameters", static_cast<double>(memory.parameter_bytes), "bytes",
      fmt::format("{} parameters per rank x {:.4g} bytes ({}fp32 weights, gradients and AdamW{})",
                  ParametersPerRank(spec.model(), classes, tensor),
                  BytesPerParameter(precision, ways.zero1, data),
                  precision == v1::BF16 ? "bf16 copy, " : "",
                  ways.zero1 ? fmt::format(", its moments in {} shards held twice", data) : ""));
  const std::int64_t per_image =
      ActivationBytesPerImage(spec.model(), precision, tensor, ways.checkpointing);
  const bool bf16 = precision == v1::BF16;
  AddTerm(option, "activations", static_cast<double>(memory.activation_bytes), "bytes",
          ways.checkpointing
              ? fmt::format("micro-batch {} x {} bytes = {} blocks x 4sh + one whole block",
                            spec.training().micro_batch(), per_image, spec.model().depth())
              : fmt::format("micro-batch {} x {} bytes = {} blocks x s=({} tokens) x h={} x ({})",
                            spec.training().micro_batch(), per_image, spec.model().depth(),
                            Tokens(spec.model()), spec.model().hidden(),
                            bf16 ? "12 + (8 + 4m/h)/t" : "16 + (16 + 8m/h)/t"));
  AddTerm(option, "overhead", static_cast<double>(memory.overhead_bytes), "bytes",
          "assumed: device context, libraries, communication buffers, on CPU the image cache");
}

/// Steps of the whole job; 0 if not known.
double Steps(const v1::JobSpec& spec, const Length& length) {
  if (spec.training().steps() > 0) return spec.training().steps();
  const double samples = static_cast<double>(spec.training().epochs()) * length.train_images;
  return std::ceil(samples / spec.training().global_batch());
}

/// Time and money as far as they are known; says what is not.
std::string AddTime(v1::PlanOption& option, const v1::JobSpec& spec, const Ways& ways,
                    const DevicePool& pool, const Length& length) {
  const StepTime step = EstimateStep(spec, Classes(spec, 0), ways.checkpointing, pool.rates);
  if (step.total() <= 0) return "; time not known: " + step.formula;
  option.set_step_seconds(step.total());
  AddTerm(option, "step_seconds", step.total(), "seconds", step.formula);
  const double steps = Steps(spec, length);
  if (steps <= 0) return "; hours not known: the number of training images is not";
  option.set_hours(steps * step.total() / 3600);
  AddTerm(option, "hours", option.hours(), "hours",
          fmt::format("{:.0f} steps x {:.4g} s / 3600", steps, step.total()));
  if (pool.rates.dollars_per_device_hour <= 0) return "; cost not known: the hosts have no price";
  const int devices = spec.parallel().tensor() * spec.parallel().data();
  option.set_dollars(Dollars(option.hours(), devices, pool.rates.dollars_per_device_hour));
  AddTerm(option, "dollars", option.dollars(), "dollars",
          fmt::format("{:.4g} h x {} devices x {:.4f} $ per device-hour", option.hours(), devices,
                      pool.rates.dollars_per_device_hour));
  return "";
}

v1::PlanOption Option(const v1::JobSpec& spec, const Ways& ways, const DevicePool& pool,
                      const Length& length, bool own) {
  const MemoryEstimate memory = EstimateMemory(spec, 0, ways);
  const std::string obstacle = Obstacle(spec, ways, pool);
  v1::PlanOption option;
  *option.mutable_parallel() = spec.parallel();
  option.set_micro_batch(spec.training().micro_batch());
  option.set_accumulation(AccumulationSteps(spec));
  option.set_fits(obstacle.empty());
  option.set_memory_bytes(memory.total_bytes());
  option.set_parameter_bytes(memory.parameter_bytes);
  option.set_activation_bytes(memory.activation_bytes);
  option.set_device_memory_bytes(pool.memory_bytes);
  option.set_flops_per_image(FlopsPerImage(spec.model(), Classes(spec, 0)));
  option.set_activation_checkpointing(ways.checkpointing);
  option.set_zero1(ways.zero1);
  AddMemoryTerms(option, spec, ways, memory);
  const std::string unknown = AddTime(option, spec, ways, pool, length);
  option.set_explanation(
      (own ? "as asked: " : "") +
      (obstacle.empty()
           ? fmt::format("{} per rank: weights, gradients and AdamW {}, activations of {} images "
                         "{}, overhead {}{}{}",
                         GiB(memory.total_bytes()), GiB(memory.parameter_bytes),
                         spec.training().micro_batch(), GiB(memory.activation_bytes),
                         GiB(memory.overhead_bytes),
                         pool.memory_bytes == 0
                             ? "; device memory not known: whether it fits is not known"
                             : "",
                         unknown)
           : obstacle));
  return option;
}

/// The options of one arrangement: as it is, and what saves memory where that is needed.
void AddOptions(v1::JobSpec spec, const DevicePool& pool, const Length& length,
                std::vector<v1::PlanOption>& options) {
  constexpr int kFewestForZero1 = 3;
  const bool several = spec.parallel().data() >= kFewestForZero1;
  for (const Ways& ways : {Ways{}, Ways{.zero1 = true}, Ways{.checkpointing = true},
                           Ways{.checkpointing = true, .zero1 = true}}) {
    if (ways.zero1 && !several) continue;
    const std::uint32_t micro = LargestMicroBatch(spec, ways, pool.memory_bytes);
    spec.mutable_training()->set_micro_batch(micro);
    options.push_back(Option(spec, ways, pool, length, false));
    if (micro == ReplicaBatch(spec) && options.back().fits()) return;
  }
}

auto RankOf(const v1::PlanOption& option) {
  return std::tuple(!option.fits(), option.hours(), option.parallel().tensor(),
                    -option.parallel().data(), option.activation_checkpointing(), option.zero1(),
                    -std::int64_t{option.micro_batch()});
}

/// At most kMostOptions, the one that was asked for among them.
void Shorten(std::vector<v1::PlanOption>& options, const std::string& own) {
  if (options.size() <= kMostOptions) return;
  const auto kept = std::ranges::find_if(
      options, [&](const v1::PlanOption& option) { return option.explanation() == own; });
  if (kept - options.begin() >= static_cast<std::ptrdiff_t>(kMostOptions)) {
    std::iter_swap(kept, options.begin() + kMostOptions - 1);
  }
  options.resize(kMostOptions);
}

}  // namespace

Ways WaysOf(const v1::JobSpec& spec) {
  // Of every second block or fewer nothing is counted: the estimate stays above the truth.
  return {.checkpointing = spec.training().checkpoint_blocks() == 1};
}

MemoryEstimate EstimateMemory(const v1::JobSpec& spec, int classes, const Ways& ways) {
  const int tensor = spec.parallel().tensor();
  const v1::Precision precision = spec.training().precision();
  MemoryEstimate memory;
  memory.parameter_bytes = static_cast<std::uint64_t>(
      static_cast<double>(ParametersPerRank(spec.model(), Classes(spec, classes), tensor)) *
      BytesPerParameter(precision, ways.zero1, spec.parallel().data()));
  memory.activation_bytes = static_cast<std::uint64_t>(ActivationBytesPerImage(
                                spec.model(), precision, tensor, ways.checkpointing)) *
                            spec.training().micro_batch();
  memory.overhead_bytes = spec.parallel().device() == "cpu"
                              ? kCpuOverhead + spec.data().cache_bytes()
                              : kAcceleratorOverhead;
  return memory;
}

std::uint32_t AccumulationSteps(const v1::JobSpec& spec) {
  const std::uint32_t micro = spec.training().micro_batch();
  return (ReplicaBatch(spec) + micro - 1) / micro;
}

absl::Status CheckFits(const v1::JobSpec& spec, std::uint64_t memory_bytes) {
  const std::string why = DoesNotFit(spec, WaysOf(spec), memory_bytes);
  return why.empty() ? absl::OkStatus() : absl::ResourceExhaustedError(why);
}

std::vector<v1::PlanOption> Plan(const v1::JobSpec& spec, const DevicePool& pool,
                                 const Length& length) {
  std::vector<v1::PlanOption> others;
  for (const int tensor : TensorDegrees(spec.model())) {
    if (tensor > pool.largest_host) break;
    v1::JobSpec other = spec;
    other.mutable_parallel()->set_tensor(tensor);
    const auto replicas =
        std::min<std::uint32_t>(pool.count / tensor, spec.training().global_batch());
    // All devices, and as many replicas as were asked for.
    for (const int data : {static_cast<int>(replicas), spec.parallel().data()}) {
      if (data < 1 || data > static_cast<int>(replicas)) continue;
      other.mutable_parallel()->set_data(data);
      AddOptions(other, pool, length, others);
    }
  }
  const v1::PlanOption own = Option(spec, WaysOf(spec), pool, length, true);
  std::ranges::sort(others, {}, RankOf);
  std::vector<v1::PlanOption> options = {own};
  for (v1::PlanOption& option : others) {
    const bool listed = std::ranges::any_of(
        options, [&](const v1::PlanOption& earlier) { return RankOf(earlier) == RankOf(option); });
    if (!listed) options.push_back(std::move(option));
  }
  // The one that was asked for leads what fits, and what does not.
  std::ranges::stable_partition(options, [](const auto& option) { return option.fits(); });
  Shorten(options, own.explanation());
  return options;
}

}  // namespace tundish::planner
