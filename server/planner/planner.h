#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "server/planner/cost.h"
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
  /// Of the slowest and dearest ones.
  Rates rates;
};

/// What a rank may do to need less memory.
struct Ways {
  /// Every block's activations are computed again in backward.
  bool checkpointing = false;
  /// The optimizer's moments are cut over the replicas, each shard held twice: saves from three
  /// replicas on.
  bool zero1 = false;
  bool operator==(const Ways&) const = default;
};

/// What the spec asks for.
Ways WaysOf(const v1::JobSpec& spec);

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
MemoryEstimate EstimateMemory(const v1::JobSpec& spec, int classes, const Ways& ways);
inline MemoryEstimate EstimateMemory(const v1::JobSpec& spec, int classes) {
  return EstimateMemory(spec, classes, WaysOf(spec));
}

/// Micro-batches a rank accumulates per step: ⌈⌈global_batch / data⌉ / micro_batch⌉.
std::uint32_t AccumulationSteps(const v1::JobSpec& spec);

/// OK when a rank of `spec` fits into `memory_bytes` (0 = not known: OK). Otherwise
/// RESOURCE_EXHAUSTED that names the largest term and what would fit: a smaller micro-batch, a
/// larger tensor degree, or nothing.
absl::Status CheckFits(const v1::JobSpec& spec, std::uint64_t memory_bytes);

/// What of a plan depends on the data. 0: not known.
struct Length {
  std::uint32_t train_images = 0;
};

/// Ways to run the resolved `spec` on `pool`, best first, at most 16: what fits before what does
/// not, the spec's own way first among those that fit, then the fewest hours where they are known,
/// then smaller tensor degree (less communication), more replicas, no checkpointing, no ZeRO-1,
/// larger micro-batch. Checkpointing and ZeRO-1 are tried where memory makes the micro-batch
/// smaller without them. Never empty: the spec's own way is always listed, with the reason if it
/// cannot run. Every number comes with its formula; one that needs something unknown is 0, and the
/// explanation says what is unknown.
std::vector<v1::PlanOption> Plan(const v1::JobSpec& spec, const DevicePool& pool,
                                 const Length& length = {});

}  // namespace tundish::planner
