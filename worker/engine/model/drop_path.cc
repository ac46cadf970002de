#include "worker/engine/model/drop_path.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "worker/random/philox.h"

namespace tundish::model {

double DropPathRate(double last_rate, int64_t block, int64_t depth) {
  return depth > 1 ? last_rate * static_cast<double>(block) / static_cast<double>(depth - 1) : 0;
}

at::Tensor DropPathScale(const DropPathKey& key, int64_t branch, int64_t batch, double rate) {
  TORCH_CHECK(0 <= rate && rate < 1, "a DropPath rate of ", rate, " is not in [0, 1)");
  const std::array<uint32_t, 2> seed = {static_cast<uint32_t>(key.seed),
                                        static_cast<uint32_t>(key.seed >> 32)};
  // A draw is uniform over 2^32 values; those below the threshold drop.
  const auto threshold = static_cast<uint64_t>(rate * 4294967296.0);
  const auto kept = static_cast<float>(1.0 / (1.0 - rate));
  at::Tensor scale = at::empty({batch, 1, 1}, at::kFloat);
  auto* const out = scale.mutable_data_ptr<float>();
  for (int64_t i = 0; i < batch; ++i) {
    const auto position = static_cast<uint64_t>(key.first_position + i);
    const std::array<uint32_t, 4> draw =
        random::Philox4x32({static_cast<uint32_t>(key.step), static_cast<uint32_t>(branch),
                            static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32)},
                           seed);
    out[i] = draw[0] < threshold ? 0.0F : kept;
  }
  return scale;
}

}  // namespace tundish::model
