#include "worker/engine/checkpoint/shard_file.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "worker/engine/checkpoint/digest.h"
#include "worker/weights/safetensors.h"

namespace tundish::checkpoint {
namespace {

// Sections of the arena, in its order, and what their keys start with.
constexpr std::array<std::string_view, 4> kSectionPrefixes = {"", "exp_avg.", "exp_avg_sq.",
                                                              "average."};
constexpr std::string_view kFormat = "tundish-checkpoint-2";
constexpr int64_t kMostRanks = 1024;

// The metadata key of a tensor's SHA-256. Weights that changed on disk would train on unnoticed.
std::string DigestKey(const std::string& key) {
  return fmt::format("sha256.{}", key);
}

std::span<const std::byte> Bytes(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

absl::StatusOr<int64_t> Number(const weights::SafetensorsReader& shard, const std::string& key) {
  const auto found = shard.metadata().find(key);
  int64_t value = -1;
  if (found != shard.metadata().end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) value = -1;
  }
  if (value < 0) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is not a checkpoint shard: its metadata has no number '{}'", shard.label(), key));
  }
  return value;
}

// All shards of one checkpoint.
struct Source {
  std::vector<weights::SafetensorsReader> shards;
  Counters counters;
};

absl::StatusOr<Source> OpenAll(const std::string& folder) {
  Source source;
  int64_t degree = 1;
  for (int64_t tp = 0; tp < degree; ++tp) {
    auto shard = weights::SafetensorsReader::Open(
        (std::filesystem::path(folder) / ShardName(static_cast<int>(tp))).string());
    if (!shard.ok()) return shard.status();
    const auto shard_degree = Number(*shard, "tensor_degree");
    const auto step = Number(*shard, "step");
    const auto updates = Number(*shard, "updates");
    for (const auto* number : {&shard_degree, &step, &updates}) {
      if (!number->ok()) return number->status();
    }
    if (tp == 0) {
      degree = *shard_degree;
      source.counters = {.step = static_cast<uint32_t>(*step), .updates = *updates};
    }
    if (degree < 1 || degree > kMostRanks || *shard_degree != degree ||
        *step != source.counters.step) {
      return absl::InvalidArgumentError(
          fmt::format("{} is of step {} and tensor degree {}, shard 0 of step {} and degree {}",
                      shard->label(), *step, *shard_degree, source.counters.step, degree));
    }
    source.shards.push_back(*std::move(shard));
  }
  return source;
}

// The slice of one section of a parameter that `shard` holds, cut in `degree`.
absl::StatusOr<at::Tensor> ReadSlice(const weights::SafetensorsReader& shard,
                                     const model::ParameterSpec& spec, std::string_view prefix,
                                     int degree) {
  const std::string key = fmt::format("{}{}", prefix, spec.name);
  const std::vector<int64_t> shape = spec.LocalShape(degree);
  const auto found = shard.tensors().find(key);
  if (found == shard.tensors().end() || found->second.shape != shape ||
      found->second.dtype != weights::DType::kF32) {
    return absl::InvalidArgumentError(fmt::format("{} does not hold '{}' as F32 of shape [{}]",
                                                  shard.label(), key, fmt::join(shape, ", ")));
  }
  at::Tensor slice = at::empty(shape, at::kFloat);
  auto* bytes = static_cast<std::byte*>(slice.mutable_data_ptr());
  if (absl::Status read = shard.Read(key, 0, {bytes, slice.nbytes()}); !read.ok()) return read;
  const auto digest = shard.metadata().find(DigestKey(key));
  if (digest == shard.metadata().end() || digest->second != DigestBytes(Bytes(slice))) {
    return absl::DataLossError(
        fmt::format("{}: the bytes of '{}' are not those that were written (SHA-256 differs)",
                    shard.label(), key));
  }
  return slice;
}

absl::Status ReadInto(const Source& source, const model::ParameterSpec& spec,
                      std::string_view prefix, std::pair<int, int> rank_of, at::Tensor target) {
  const auto [rank, degree] = rank_of;
  const int stored = static_cast<int>(source.shards.size());
  if (stored == degree || spec.cut == model::Cut::kReplicated) {
    const size_t own = stored == degree ? static_cast<size_t>(rank) : 0;
    auto slice = ReadSlice(source.shards[own], spec, prefix, stored);
    if (!slice.ok()) return slice.status();
    target.copy_(*slice);
    return absl::OkStatus();
  }
  at::Tensor full = at::empty(spec.full_shape, at::kFloat);
  for (int tp = 0; tp < stored; ++tp) {
    auto slice = ReadSlice(source.shards[static_cast<size_t>(tp)], spec, prefix, stored);
    if (!slice.ok()) return slice.status();
    model::PlaceSlice(full, *slice, spec, tp, stored);
  }
  target.copy_(model::CutForRank(full, spec, rank, degree));
  return absl::OkStatus();
}

}  // namespace

Snapshot TakeSnapshot(const model::ParameterArena& arena) {
  Snapshot snapshot;
  snapshot.section_numel = arena.section_numel();
  snapshot.sections = arena.sections();
  snapshot.state = arena.state().detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  for (const model::Parameter& parameter : arena.parameters()) {
    snapshot.pieces.push_back({.name = parameter.spec.name,
                               .shape = parameter.value.sizes().vec(),
                               .offset = parameter.value.storage_offset(),
                               .numel = parameter.value.numel()});
  }
  return snapshot;
}

std::string ShardName(int tensor_rank) {
  return fmt::format("shard-tp{}.safetensors", tensor_rank);
}

absl::Status WriteShard(const std::string& folder, const Snapshot& snapshot) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(fmt::format("cannot make {}: {}", folder, error.message()));
  }
  weights::Metadata metadata = {
      {"format", std::string(kFormat)},
      {"step", fmt::format("{}", snapshot.step)},
      {"updates", fmt::format("{}", snapshot.updates)},
      {"seed", fmt::format("{}", snapshot.seed)},
      {"tensor_rank", fmt::format("{}", snapshot.tensor_rank)},
      {"tensor_degree", fmt::format("{}", snapshot.tensor_degree)},
  };
  std::vector<weights::TensorBytes> tensors;
  for (size_t section = 0; section < static_cast<size_t>(snapshot.sections); ++section) {
    const int64_t start = static_cast<int64_t>(section) * snapshot.section_numel;
    for (const Snapshot::Piece& piece : snapshot.pieces) {
      tensors.push_back(
          {.spec = {.name = fmt::format("{}{}", kSectionPrefixes[section], piece.name),
                    .dtype = weights::DType::kF32,
                    .shape = piece.shape},
           .bytes = Bytes(snapshot.state.narrow(0, start + piece.offset, piece.numel))});
      metadata[DigestKey(tensors.back().spec.name)] = DigestBytes(tensors.back().bytes);
    }
  }
  return weights::WriteSafetensors(
      (std::filesystem::path(folder) / ShardName(snapshot.tensor_rank)).string(), tensors,
      metadata);
}

absl::StatusOr<Counters> ReadCheckpoint(const std::string& folder, int rank, int degree,
                                        model::ParameterArena& arena) {
  const c10::AutoGradMode no_grad(false);
  auto source = OpenAll(folder);
  if (!source.ok()) return source.status();
  arena.ClearState();
  for (model::Parameter& parameter : arena.parameters()) {
    const std::array<at::Tensor, 4> sections = {parameter.value, parameter.exp_avg,
                                                parameter.exp_avg_sq, parameter.average};
    for (size_t section = 0; section < static_cast<size_t>(arena.sections()); ++section) {
      if (absl::Status read = ReadInto(*source, parameter.spec, kSectionPrefixes[section],
                                       {rank, degree}, sections[section]);
          !read.ok()) {
        return read;
      }
    }
  }
  return source->counters;
}

}  // namespace tundish::checkpoint
