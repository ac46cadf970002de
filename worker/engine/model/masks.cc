#include "worker/engine/model/masks.h"

#include <array>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "worker/random/philox.h"

namespace tundish::model {

namespace {

using Words = std::array<uint32_t, 2>;

Words Halves(uint64_t value) {
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

/// A draw is uniform over 2^32 values; those below the threshold drop.
struct Drop {
  explicit Drop(double rate)
      : threshold(static_cast<uint64_t>(rate * 4294967296.0)),
        kept(static_cast<float>(1.0 / (1.0 - rate))) {
    TORCH_CHECK(0 <= rate && rate < 1, "a drop rate of ", rate, " is not in [0, 1)");
  }
  float Scale(uint32_t draw) const { return draw < threshold ? 0.0F : kept; }

  uint64_t threshold;
  float kept;
};

/// One sample's factors. Four elements share a counter.
void FillElements(const Drop& drop, Words stream, Words position, int64_t first, int64_t count,
                  float* out) {
  for (int64_t element = first; element < first + count;) {
    const Words quad = Halves(static_cast<uint64_t>(element / 4));
    const std::array<uint32_t, 4> draw =
        random::Philox4x32({quad[0], quad[1], position[0], position[1]}, stream);
    for (auto lane = static_cast<size_t>(element % 4); lane < 4 && element < first + count;
         ++lane, ++element) {
      out[element - first] = drop.Scale(draw[lane]);
    }
  }
}

}  // namespace

double DropPathRate(double last_rate, int64_t block, int64_t depth) {
  return depth > 1 ? last_rate * static_cast<double>(block) / static_cast<double>(depth - 1) : 0;
}

at::Tensor DropPathScale(const MaskKey& key, int64_t branch, int64_t batch, double rate) {
  const Drop drop(rate);
  at::Tensor scale = at::empty({batch, 1, 1}, at::kFloat);
  auto* const out = scale.mutable_data_ptr<float>();
  for (int64_t i = 0; i < batch; ++i) {
    const Words position = Halves(static_cast<uint64_t>(key.first_position + i));
    const std::array<uint32_t, 4> draw = random::Philox4x32(
        {static_cast<uint32_t>(key.step), static_cast<uint32_t>(branch), position[0], position[1]},
        Halves(key.seed));
    out[i] = drop.Scale(draw[0]);
  }
  return scale;
}

at::Tensor DropoutScale(const MaskKey& key, int64_t site, int64_t batch, int64_t first_element,
                        int64_t count, double rate) {
  const Drop drop(rate);
  // A key of its own per (step, site) leaves the whole counter to sample and element. The constant
  // keeps it apart from DropPath's draws, whose last two words are a position.
  constexpr uint32_t kDropoutStreams = 0x64726f70;
  const std::array<uint32_t, 4> derived = random::Philox4x32(
      {static_cast<uint32_t>(key.step), static_cast<uint32_t>(site), 0, ~kDropoutStreams},
      Halves(key.seed));
  const Words stream = {derived[0], derived[1]};
  at::Tensor scale = at::empty({batch, count}, at::kFloat);
  auto* const out = scale.mutable_data_ptr<float>();
  at::parallel_for(0, batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      FillElements(drop, stream, Halves(static_cast<uint64_t>(key.first_position + i)),
                   first_element, count, out + i * count);
    }
  });
  return scale;
}

}  // namespace tundish::model
