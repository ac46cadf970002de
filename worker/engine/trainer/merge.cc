#include "worker/engine/trainer/merge.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

namespace tundish::trainer {
namespace {

// Places tensor rank `tp`'s section of values, laid out like `shard`'s own, into `full`.
void PlaceAll(const Shard& shard, const at::Tensor& values, int tp, checkpoint::FullTensors& full) {
  for (const model::Parameter& parameter : shard.model.arena().parameters()) {
    if (tp > 0 && !parameter.sharded()) continue;
    at::Tensor& target = full[parameter.spec.name];
    if (!target.defined()) target = at::empty(parameter.spec.full_shape, at::kFloat);
    const at::Tensor slice =
        values.narrow(0, parameter.value.storage_offset(), parameter.value.numel())
            .view(parameter.value.sizes());
    model::PlaceSlice(target, slice, parameter.spec, tp, shard.slot.size());
  }
}

}  // namespace

std::optional<checkpoint::FullTensors> MergeOverRow(const Place& place, Shard& shard,
                                                    Arrangement& arrangement, bool average) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor values =
      (average ? shard.model.arena().averages() : shard.model.arena().values()).detach();
  if (place.tp > 0) {
    arrangement.row()->Send(values, 0);
    return std::nullopt;
  }
  checkpoint::FullTensors full;
  PlaceAll(shard, values.cpu(), 0, full);
  for (int tp = 1; tp < place.tensor_degree; ++tp) {
    at::Tensor received = at::empty_like(values);
    arrangement.row()->Receive(received, tp);
    PlaceAll(shard, received.cpu(), tp, full);
  }
  return full;
}

}  // namespace tundish::trainer
