#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "tundish/v1/job.pb.h"
#include "tundish/v1/job_service.pb.h"

namespace tundish::planner {

/// The devices a plan may count on: of the spec's kind, on hosts that are ready and not drained.
struct DevicePool {
  std::string kind;
  int count = 0;
  /// Most devices of the kind on one host: plans keep a tensor-parallel group inside a host.
  int largest_host = 0;
  /// Memory of the smallest one, bytes; 0: not known.
  std::uint64_t memory_bytes = 0;
};

/// Predicted memory of one rank, bytes.
struct MemoryEstimate {
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  /// Device context, libraries, communication buffers and fragmentation: 1 GiB on accelerators, 256
  /// MiB on CPU (which holds a rank's code and LibTorch), plus the decoded-image cache on CPU.
  std::uint64_t overhead_bytes = 0;
  std::uint64_t total_bytes() const { return parameter_bytes + activation_bytes + overhead_bytes; }
};

/// `spec` is resolved. `classes` 0: taken from spec.data.classes, or 2 where that is empty.
MemoryEstimate EstimateMemory(const v1::JobSpec& spec, int classes);

/// Micro-batches a rank accumulates per step: ⌈⌈global_batch / data⌉ / micro_batch⌉.
std::uint32_t AccumulationSteps(const v1::JobSpec& spec);

/// OK when a rank of `spec` fits into `memory_bytes` (0 = not known: OK). Otherwise
/// RESOURCE_EXHAUSTED that names the largest term and what would fit: a smaller micro-batch, a
/// larger tensor degree, or nothing.
absl::Status CheckFits(const v1::JobSpec& spec, std::uint64_t memory_bytes);

/// Ways to run the resolved `spec` on `pool`, best first, at most 16: what fits before what does
/// not, the spec's own degrees first among those that fit, then smaller tensor degree (less
/// communication), more replicas, larger micro-batch. Never empty: the spec's own way is always
/// listed, with the reason if it cannot run.
std::vector<v1::PlanOption> Plan(const v1::JobSpec& spec, const DevicePool& pool);

}  // namespace tundish::planner
