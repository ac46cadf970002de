#include "server/planner/planner.h"

#include <algorithm>
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

bool Fits(const v1::JobSpec& spec, std::uint64_t memory_bytes) {
  return memory_bytes == 0 || EstimateMemory(spec, 0).total_bytes() <= memory_bytes;
}

/// The largest of batch, batch/2, batch/4 … that fits; 1 if none does.
std::uint32_t LargestMicroBatch(v1::JobSpec spec, std::uint64_t memory_bytes) {
  std::uint32_t micro = ReplicaBatch(spec);
  while (true) {
    spec.mutable_training()->set_micro_batch(micro);
    if (micro == 1 || Fits(spec, memory_bytes)) return micro;
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
  const std::uint32_t micro = LargestMicroBatch(spec, memory_bytes);
  other.mutable_training()->set_micro_batch(micro);
  if (micro < spec.training().micro_batch() && Fits(other, memory_bytes)) {
    return fmt::format("training.micro_batch={} would fit", micro);
  }
  for (const int tensor : TensorDegrees(spec.model())) {
    if (tensor <= spec.parallel().tensor()) continue;
    other.mutable_parallel()->set_tensor(tensor);
    if (Fits(other, memory_bytes)) {
      return fmt::format("parallel.tensor={} with training.micro_batch={} would fit", tensor,
                         micro);
    }
  }
  return "no tensor degree that divides model.heads makes it fit: use a smaller model or images";
}

/// Why `spec` cannot run on `pool`; empty if it can.
std::string Obstacle(const v1::JobSpec& spec, const DevicePool& pool) {
  const std::int64_t needed = std::int64_t{spec.parallel().tensor()} * spec.parallel().data();
  if (needed > pool.count) {
    return fmt::format("needs {} {} devices, the cluster has {}", needed, pool.kind, pool.count);
  }
  if (spec.parallel().tensor() > pool.largest_host) {
    return fmt::format("a tensor-parallel group of {} does not fit one host: the largest has {}",
                       spec.parallel().tensor(), pool.largest_host);
  }
  return std::string(CheckFits(spec, pool.memory_bytes).message());
}

v1::PlanOption Option(const v1::JobSpec& spec, const DevicePool& pool, bool own) {
  const MemoryEstimate memory = EstimateMemory(spec, 0);
  const std::string obstacle = Obstacle(spec, pool);
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
  option.set_explanation(
      obstacle.empty()
          ? fmt::format("{}{} per rank: weights, gradients and AdamW {}, activations of {} images "
                        "{}, overhead {}{}",
                        own ? "as asked: " : "", GiB(memory.total_bytes()),
                        GiB(memory.parameter_bytes), spec.training().micro_batch(),
                        GiB(memory.activation_bytes), GiB(memory.overhead_bytes),
                        pool.memory_bytes == 0 ? "; device memory not known" : "")
          : (own ? "as asked: " : "") + obstacle);
  return option;
}

}  // namespace

MemoryEstimate EstimateMemory(const v1::JobSpec& spec, int classes) {
  const int tensor = spec.parallel().tensor();
  const v1::Precision precision = spec.training().precision();
  MemoryEstimate memory;
  memory.parameter_bytes =
      static_cast<std::uint64_t>(ParametersPerRank(spec.model(), Classes(spec, classes), tensor)) *
      BytesPerParameter(precision);
  memory.activation_bytes =
      static_cast<std::uint64_t>(ActivationBytesPerImage(spec.model(), precision, tensor)) *
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
  if (Fits(spec, memory_bytes)) return absl::OkStatus();
  const MemoryEstimate memory = EstimateMemory(spec, 0);
  const std::pair<std::uint64_t, const char*> largest =
      std::max({std::pair{memory.parameter_bytes, "weights, gradients and AdamW"},
                std::pair{memory.activation_bytes, "activations"},
                std::pair{memory.overhead_bytes, "overhead"}});
  return absl::ResourceExhaustedError(
      fmt::format("a rank needs {}, its device has {}; the largest part is {} with {}; {}",
                  GiB(memory.total_bytes()), GiB(memory_bytes), largest.second, GiB(largest.first),
                  WouldFit(spec, memory_bytes)));
}

std::vector<v1::PlanOption> Plan(const v1::JobSpec& spec, const DevicePool& pool) {
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
      other.mutable_training()->set_micro_batch(LargestMicroBatch(other, pool.memory_bytes));
      others.push_back(Option(other, pool, false));
    }
  }
  const v1::PlanOption own = Option(spec, pool, true);
  const auto key = [](const v1::PlanOption& option) {
    return std::tuple(!option.fits(), option.parallel().tensor(), -option.parallel().data(),
                      -std::int64_t{option.micro_batch()});
  };
  std::ranges::sort(others, {}, key);
  std::vector<v1::PlanOption> options = {own};
  for (v1::PlanOption& option : others) {
    const bool listed = std::ranges::any_of(
        options, [&](const v1::PlanOption& earlier) { return key(earlier) == key(option); });
    if (!listed) options.push_back(std::move(option));
  }
  // The one that was asked for leads what fits, and what does not.
  std::ranges::stable_partition(options, [](const auto& option) { return option.fits(); });
  if (options.size() > kMostOptions) {
    const auto kept = std::ranges::find_if(options, [&](const v1::PlanOption& option) {
      return option.explanation() == own.explanation();
    });
    if (kept - options.begin() >= static_cast<std::ptrdiff_t>(kMostOptions)) {
      std::iter_swap(kept, options.begin() + kMostOptions - 1);
    }
    options.resize(kMostOptions);
  }
  return options;
}

}  // namespace tundish::planner
