#include "worker/engine/trainer/state_copy.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace tundish::trainer {
namespace {

// The message ahead of the state: int64 fields, then one entry per norm slot.
enum HeaderField {
  kElements,
  kHash,
  kStep,
  kUpdates,
  kHasSums,
  kLossSum,
  kWeightSum,
  kNonFinite,
  kFirstNorm,
};

uint64_t HashState(const at::Tensor& state) {
  const at::Tensor host = state.cpu();
  return HashBytes(host.const_data_ptr(), host.nbytes());
}

at::Tensor MakeHeader(const Shard& shard) {
  at::Tensor header = at::zeros({kFirstNorm + shard.slot.size()}, at::kLong);
  auto* fields = header.mutable_data_ptr<int64_t>();
  fields[kElements] = shard.model.arena().state().numel();
  fields[kHash] = std::bit_cast<int64_t>(HashState(shard.model.arena().state()));
  fields[kStep] = shard.step;
  fields[kUpdates] = shard.updates;
  fields[kHasSums] = shard.committed_sums.has_value() ? 1 : 0;
  if (shard.committed_sums.has_value()) {
    const v1::StepSums& sums = *shard.committed_sums;
    fields[kLossSum] = sums.loss_sum_bits();
    fields[kWeightSum] = sums.weight_sum_bits();
    fields[kNonFinite] = sums.nonfinite_bits();
    for (int tp = 0; tp < shard.slot.size(); ++tp) {
      fields[kFirstNorm + tp] = sums.norm_squared_bits(tp);
    }
  }
  return header;
}

void TakeHeader(const int64_t* fields, Shard& shard) {
  shard.step = static_cast<uint32_t>(fields[kStep]);
  shard.updates = fields[kUpdates];
  shard.phase = v1::COMPUTING;
  shard.sums.Clear();
  shard.committed_sums.reset();
  if (fields[kHasSums] == 0) return;
  v1::StepSums& sums = shard.committed_sums.emplace();
  sums.set_loss_sum_bits(static_cast<uint32_t>(fields[kLossSum]));
  sums.set_weight_sum_bits(static_cast<uint32_t>(fields[kWeightSum]));
  sums.set_nonfinite_bits(static_cast<uint32_t>(fields[kNonFinite]));
  for (int tp = 0; tp < shard.slot.size(); ++tp) {
    sums.add_norm_squared_bits(static_cast<uint32_t>(fields[kFirstNorm + tp]));
    sums.add_norm_known(true);
  }
}

}  // namespace

uint64_t HashBytes(const void* data, size_t bytes) {
  // Four independent multiply-and-rotate lanes, so that memory and not the multiplier is the limit.
  constexpr uint64_t kPrime = 0x9E3779B185EBCA87;
  constexpr size_t kLanes = 4;
  constexpr size_t kStride = kLanes * sizeof(uint64_t);
  const auto* at = static_cast<const unsigned char*>(data);
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
  size_t left = bytes;
  for (; left >= kStride; left -= kStride, at += kStride) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, kStride);
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = std::rotl((lanes[i] ^ words[i]) * kPrime, 29);
    }
  }
  uint64_t hash = bytes;
  for (const uint64_t lane : lanes) hash = std::rotl((hash ^ lane) * kPrime, 31);
  for (; left > 0; --left, ++at) hash = std::rotl((hash ^ *at) * kPrime, 31);
  return hash ^ (hash >> 32);
}

void SendState(Shard& shard, device::Communicator& column, int to) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor& state = shard.model.arena().state();
  column.Send(MakeHeader(shard).to(state.device()), to);
  column.Send(state, to);
}

void ReceiveState(Shard& shard, device::Communicator& column, int from) {
  const c10::AutoGradMode no_grad(false);
  model::ParameterArena& arena = shard.model.arena();
  at::Tensor header = at::zeros({kFirstNorm + shard.slot.size()},
                                at::TensorOptions(at::kLong).device(arena.state().device()));
  column.Receive(header, from);
  header = header.cpu();
  const auto* fields = header.const_data_ptr<int64_t>();
  TORCH_CHECK(fields[kElements] == arena.state().numel(), "rank ", from, " of the column holds ",
              fields[kElements], " values, this rank needs ", arena.state().numel());
  at::Tensor staging = at::empty_like(arena.state());
  column.Receive(staging, from);
  TORCH_CHECK(HashState(staging) == std::bit_cast<uint64_t>(fields[kHash]),
              "the state received from rank ", from, " of the column is damaged");
  arena.Restore(staging);
  TakeHeader(fields, shard);
  shard.has_state = true;
}

}  // namespace tundish::trainer
