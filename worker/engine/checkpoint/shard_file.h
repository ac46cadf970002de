#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker/engine/model/parameter_arena.h"

namespace tundish::checkpoint {

/// A rank's training state at one step, apart from the live one, and where each parameter lies in
/// it.
struct Snapshot {
  struct Piece {
    std::string name;
    std::vector<int64_t> shape;
    int64_t offset = 0;  ///< Elements from the start of a section of the arena.
    int64_t numel = 0;
  };

  uint32_t step = 0;
  int64_t updates = 0;
  uint64_t seed = 0;
  int tensor_rank = 0;
  int tensor_degree = 1;
  int64_t section_numel = 0;
  int64_t sections = 3;  ///< Of the arena: 4 with an average.
  at::Tensor state;      ///< CPU copy of ParameterArena::state().
  std::vector<Piece> pieces;
};

/// Copies the arena; the training may go on. Fill in the scalars besides.
Snapshot TakeSnapshot(const model::ParameterArena& arena);

/// "shard-tp3.safetensors"
std::string ShardName(int tensor_rank);

/// Writes the snapshot to `folder`/ShardName as one safetensors file: each parameter under timm's
/// key with this rank's slice, its moments as "exp_avg.KEY" and "exp_avg_sq.KEY", its average,
/// where one is kept, as "average.KEY", counters and each tensor's SHA-256 as metadata. Makes the
/// folder. Atomic and durable.
absl::Status WriteShard(const std::string& folder, const Snapshot& snapshot);

/// Counters of a checkpoint.
struct Counters {
  uint32_t step = 0;
  int64_t updates = 0;
};

/// Fills the arena of tensor rank `rank` of `degree` from the checkpoint in `folder`, which may
/// have been written at another degree: the cut tensors are put together and cut anew, bit for bit.
/// Memory: one whole parameter at a time. Errors: NotFound when a shard is missing; InvalidArgument
/// naming the file and what does not fit this model; DataLoss naming the file and the tensor
/// whose bytes changed since they were written. The arena is undefined after an error.
absl::StatusOr<Counters> ReadCheckpoint(const std::string& folder, int rank, int degree,
                                        model::ParameterArena& arena);

}  // namespace tundish::checkpoint
