#include "worker/engine/trainer/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "worker/engine/trainer/exchange.h"
#include "worker/engine/trainer/sums.h"

namespace tundish::trainer {
namespace {

constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();
// What one rank tells: [ordinal, dp, tp, text of 192 bytes].
constexpr size_t kTextWords = 24;
constexpr size_t kStride = 3 + kTextWords;

// The record with the smallest ordinal; of equals the first.
std::vector<int64_t> Earliest(const std::vector<int64_t>& records) {
  size_t best = 0;
  for (size_t at = kStride; at + kStride <= records.size(); at += kStride) {
    if (records[at] < records[best]) best = at;
  }
  const auto first = records.begin() + static_cast<std::ptrdiff_t>(best);
  return {first, first + static_cast<std::ptrdiff_t>(kStride)};
}

}  // namespace

bool StepIsFinite(const v1::StepSums& sums, int tensor_degree) {
  return AllFinite(sums) && std::isfinite(GlobalNorm(sums, tensor_degree)) &&
         std::isfinite(GlobalLoss(sums));
}

std::optional<FirstBad> BadInput(const Shard& shard, const data::Batch& batch) {
  for (const model::Parameter& parameter : shard.model.arena().parameters()) {
    if (observe::HasNonFinite(parameter.value)) {
      return FirstBad{-1, fmt::format("parameter {} before the step", parameter.spec.name)};
    }
  }
  if (!std::ranges::all_of(batch.pixels, [](float value) { return std::isfinite(value); })) {
    return FirstBad{-1, "the batch's images"};
  }
  if (!std::ranges::all_of(batch.weights, [](float value) { return std::isfinite(value); })) {
    return FirstBad{-1, "the batch's sample weights"};
  }
  return std::nullopt;
}

std::string AgreeOnFirstBad(const Place& place, Arrangement& arrangement, at::Device device,
                            const std::optional<FirstBad>& own) {
  std::vector<int64_t> record = {own.has_value() ? own->ordinal : kNothing, place.dp, place.tp};
  const std::vector<int64_t> text = PackText(own.has_value() ? own->what : "", kTextWords);
  record.insert(record.end(), text.begin(), text.end());
  record = Earliest(
      GatherNumbers(arrangement.column().get(), device, place.dp, place.data_degree, record));
  record = Earliest(
      GatherNumbers(arrangement.row().get(), device, place.tp, place.tensor_degree, record));
  if (record[0] == kNothing) {
    return "every tensor of every rank is finite by itself, their sum is not";
  }
  return fmt::format("the first bad tensor is {} on rank dp={} tp={}",
                     UnpackText(std::span(record).subspan(3)), record[1], record[2]);
}

v1::RankNotice SkipNotice(const v1::StepDone& done, const std::string& first_bad) {
  v1::RankNotice notice;
  notice.set_type("step_skipped");
  notice.set_reason("non_finite_loss");
  notice.set_message(fmt::format("step {} was passed over: loss {}, gradient norm {}; {}",
                                 done.step(), done.loss(), done.gradient_norm(), first_bad));
  return notice;
}

}  // namespace tundish::trainer
