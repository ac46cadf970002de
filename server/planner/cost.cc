#include "server/planner/cost.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "server/planner/formulas.h"

namespace tundish::planner {
namespace {

/// Backward is two thirds of a micro-batch's compute; the reduction of gradients hides behind it.
constexpr double kBackwardShare = 2.0 / 3.0;
constexpr double kAllReducesPerBlock = 4;

std::uint32_t ReplicaBatch(const v1::JobSpec& spec) {
  const auto data = static_cast<std::uint32_t>(spec.parallel().data());
  return (spec.training().global_batch() + data - 1) / data;
}

}  // namespace

double AllReduceSeconds(double bytes, int devices, double link_bytes_per_second) {
  if (devices < 2 || link_bytes_per_second <= 0) return 0;
  return 2.0 * (devices - 1) / devices * bytes / link_bytes_per_second;
}

StepTime EstimateStep(const v1::JobSpec& spec, int classes, bool checkpointing,
                      const Rates& rates) {
  StepTime time;
  if (rates.peak_flops <= 0 || rates.efficiency <= 0) {
    time.formula = rates.peak_flops <= 0 ? "the device's peak rate is not known"
                                         : "the device's efficiency is not known";
    return time;
  }
  const int tensor = spec.parallel().tensor();
  const int data = spec.parallel().data();
  const double images = ReplicaBatch(spec);
  const double recompute = checkpointing ? 4.0 / 3.0 : 1.0;
  const double flops = FlopsPerImage(spec.model(), classes) * recompute;
  const double rate = tensor * rates.peak_flops * rates.efficiency;
  time.compute = images * flops / rate;
  time.formula =
      fmt::format("compute {:.4g} s = {} images x {:.4g} GFLOP{} / ({} x {:.4g} TFLOP/s x {:.3g})",
                  time.compute, images, FlopsPerImage(spec.model(), classes) / 1e9,
                  checkpointing ? " x 4/3" : "", tensor, rates.peak_flops / 1e12, rates.efficiency);
  if (rates.link_bytes_per_second <= 0) {
    if (tensor * data > 1) time.formula += "; communication not counted: link rate not known";
    return time;
  }
  const double element = spec.training().precision() == v1::BF16 ? 2 : 4;
  const double activation =
      images * static_cast<double>(Tokens(spec.model())) * spec.model().hidden() * element;
  time.tensor_parallel = kAllReducesPerBlock * spec.model().depth() *
                         AllReduceSeconds(activation, tensor, rates.link_bytes_per_second);
  const double gradients =
      4.0 * static_cast<double>(ParametersPerRank(spec.model(), classes, tensor));
  const double reduce = AllReduceSeconds(gradients, data, rates.link_bytes_per_second);
  const double hidden =
      kBackwardShare * time.compute * std::min(1.0, spec.training().micro_batch() / images);
  time.exposed_data_parallel = std::max(0.0, reduce - hidden);
  if (tensor > 1) {
    time.formula += fmt::format(
        " + tensor-parallel {:.4g} s = 4 x {} blocks x 2({} - 1)/{} x "
        "{:.4g} MB / {:.4g} GB/s",
        time.tensor_parallel, spec.model().depth(), tensor, tensor, activation / 1e6,
        rates.link_bytes_per_second / 1e9);
  }
  if (data > 1) {
    time.formula += fmt::format(
        " + gradients {:.4g} s beyond backward = 2({} - 1)/{} x {:.4g} MB / "
        "{:.4g} GB/s - {:.4g} s",
        time.exposed_data_parallel, data, data, gradients / 1e6, rates.link_bytes_per_second / 1e9,
        hidden);
  }
  return time;
}

double Dollars(double hours, int devices, double dollars_per_device_hour, double fixed_dollars) {
  return hours * devices * dollars_per_device_hour + fixed_dollars;
}

Saving Compare(double dollars_before, double dollars_after, double runs_per_month, double once) {
  Saving saving;
  if (dollars_before > 0) saving.share = (dollars_before - dollars_after) / dollars_before;
  saving.per_month = (dollars_before - dollars_after) * runs_per_month;
  saving.months_to_pay_back =
      saving.per_month > 0 ? once / saving.per_month : std::numeric_limits<double>::infinity();
  return saving;
}

}  // namespace tundish::planner
