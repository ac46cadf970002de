#include "worker/engine/trainer/replica_check.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include "worker/data/order.h"
#include "worker/engine/trainer/exchange.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/state_copy.h"

namespace tundish::trainer {
namespace {

// SplitMix64's finalizer: spreads every bit over all (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

uint64_t SampleKey(uint64_t position, uint32_t sample) {
  return Mix(Mix(position + 1) + sample);
}

// Values of the arena on the CPU, and the hash of each parameter in them.
class HashedValues {
 public:
  explicit HashedValues(Shard& shard) : shard_(shard) {
    const c10::AutoGradMode no_grad(false);
    values_ = shard.model.arena().values().detach().cpu();
  }

  int64_t OfAll() const { return Hash(0, values_.numel()); }

  std::vector<int64_t> OfEach() const {
    std::vector<int64_t> hashes;
    for (const model::Parameter& parameter : shard_.model.arena().parameters()) {
      hashes.push_back(Hash(parameter.value.storage_offset(), parameter.value.numel()));
    }
    return hashes;
  }

 private:
  int64_t Hash(int64_t offset, int64_t numel) const {
    return std::bit_cast<int64_t>(HashBytes(values_.const_data_ptr<float>() + offset,
                                            static_cast<size_t>(numel) * sizeof(float)));
  }

  Shard& shard_;  // The caller's, for one check.
  at::Tensor values_;
};

// One member's numbers out of all.
std::vector<int64_t> Column(const std::vector<int64_t>& all, size_t stride, size_t index) {
  std::vector<int64_t> column;
  for (size_t at = index; at < all.size(); at += stride) column.push_back(all[at]);
  return column;
}

[[noreturn]] void FailReplica(uint32_t step, const std::string& parameter, const char* axis,
                              const std::vector<size_t>& odd, const char* fixed_axis, int fixed) {
  std::string ranks;
  for (const size_t index : odd) {
    ranks +=
        fmt::format("{}{}={} {}={}", ranks.empty() ? "" : ", ", axis, index, fixed_axis, fixed);
  }
  throw FatalError("replicas_differ",
                   fmt::format("after step {} parameter '{}' of rank {} is not that of the other "
                               "ranks of its {}: memory or a collective is broken, or something "
                               "changed weights outside the step",
                               step, parameter, ranks, axis[0] == 'd' ? "column" : "row"));
}

// The ranks' samples against the step's slices of the global order.
void CheckSamples(const TrainingPlan& plan, const Place& place, uint32_t step,
                  const std::vector<int64_t>& digests) {
  const data::SampleOrder order(plan.seed, plan.train_images);
  for (int dp = 0; dp < place.data_degree; ++dp) {
    const data::PositionRange slice =
        data::RowSlice(step, plan.global_batch, static_cast<uint32_t>(dp),
                       static_cast<uint32_t>(place.data_degree));
    uint64_t expected = 0;
    for (uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
      expected += SampleKey(p, order.IndexAt(p));
    }
    if (std::bit_cast<uint64_t>(digests[static_cast<size_t>(dp)]) == expected) continue;
    throw FatalError("samples_differ",
                     fmt::format("in step {} rank dp={} tp={} did not train on its own samples, "
                                 "positions {} to {} of the global order",
                                 step, dp, place.tp, slice.first, slice.first + slice.count - 1));
  }
}

}  // namespace

uint64_t SampleDigest(const std::vector<uint64_t>& positions,
                      const std::vector<uint32_t>& samples) {
  uint64_t digest = 0;
  for (size_t i = 0; i < positions.size(); ++i) digest += SampleKey(positions[i], samples[i]);
  return digest;
}

std::vector<size_t> OddOnes(const std::vector<int64_t>& hashes) {
  std::vector<size_t> odd;
  const auto right = std::ranges::max_element(
      hashes, {}, [&hashes](int64_t hash) { return std::ranges::count(hashes, hash); });
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] != *right) odd.push_back(i);
  }
  return odd;
}

void CheckReplicas(const TrainingPlan& plan, const Place& place, Shard& shard,
                   Arrangement& arrangement, device::Backend& backend, const data::Batch& batch) {
  const HashedValues values(shard);
  const uint32_t step = batch.step;
  const auto digest = std::bit_cast<int64_t>(SampleDigest(batch.positions, batch.samples));
  const std::vector<model::Parameter>& parameters = shard.model.arena().parameters();

  const auto over_column = [&](std::span<const int64_t> own) {
    return GatherNumbers(arrangement.column().get(), backend.device(), place.dp, place.data_degree,
                         own);
  };
  const int64_t own[] = {values.OfAll(), digest};
  const std::vector<int64_t> column = over_column(own);
  if (!OddOnes(Column(column, 2, 0)).empty()) {
    const std::vector<int64_t> each = over_column(values.OfEach());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<size_t> odd = OddOnes(Column(each, parameters.size(), i));
      if (!odd.empty()) FailReplica(step, parameters[i].spec.name, "dp", odd, "tp", place.tp);
    }
    FailReplica(step, "(between parameters)", "dp", OddOnes(Column(column, 2, 0)), "tp", place.tp);
  }
  CheckSamples(plan, place, step, Column(column, 2, 1));

  if (!arrangement.row()) return;
  // Replicated parameters one by one: they are few, and there is no second round.
  const std::vector<int64_t> each = values.OfEach();
  std::vector<int64_t> replicated;
  std::vector<size_t> index;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].sharded()) continue;
    replicated.push_back(each[i]);
    index.push_back(i);
  }
  const std::vector<int64_t> row = GatherNumbers(arrangement.row().get(), backend.device(),
                                                 place.tp, place.tensor_degree, replicated);
  for (size_t i = 0; i < index.size(); ++i) {
    const std::vector<size_t> odd = OddOnes(Column(row, index.size(), i));
    if (!odd.empty()) FailReplica(step, parameters[index[i]].spec.name, "tp", odd, "dp", place.dp);
  }
}

}  // namespace tundish::trainer
