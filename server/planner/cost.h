#pragma once

#include <cstdint>
#include <string>

#include "tundish/v1/job.pb.h"

// What a plan takes: time and money, each with its formula.
namespace tundish::planner {

/// What is known of the devices. 0: not known.
struct Rates {
  /// Peak dense bf16 rate of one device, FLOP/s, and the share of it that training reaches.
  double peak_flops = 0;
  double efficiency = 0;
  /// Bytes per second between two devices of one host, each way.
  double link_bytes_per_second = 0;
  /// Price of one device: its host's, divided by the host's devices.
  double dollars_per_device_hour = 0;
};

/// Seconds of one step and where they go.
struct StepTime {
  double compute = 0;
  /// Four all-reduces per block and micro-batch (Shoeybi et al. 2019); not overlapped.
  double tensor_parallel = 0;
  /// What is left of the gradients' all-reduce when the last micro-batch's backward is over.
  double exposed_data_parallel = 0;
  double total() const { return compute + tensor_parallel + exposed_data_parallel; }
  /// The sum with its numbers.
  std::string formula;
};

/// A ring all-reduce of n bytes over d devices moves 2·(d − 1)/d · n bytes over each link.
double AllReduceSeconds(double bytes, int devices, double link_bytes_per_second);

/// `spec` is resolved; `classes` as in FlopsPerImage. Compute: images · FLOPs per image · 4/3 with
/// checkpointing (the forward pass is done twice), over tensor · peak · efficiency. 0 in total when
/// peak or efficiency are not known; communication is left out when the link is not.
StepTime EstimateStep(const v1::JobSpec& spec, int classes, bool checkpointing, const Rates& rates);

/// hours × devices × price, plus what does not depend on time (storage, egress).
double Dollars(double hours, int devices, double dollars_per_device_hour, double fixed_dollars = 0);

/// What one choice saves against another: share of the dearer cost, and months until a cost of
/// `once` is paid back at `runs_per_month`. Months are infinite when nothing is saved.
struct Saving {
  double share = 0;
  double per_month = 0;
  double months_to_pay_back = 0;
};
Saving Compare(double dollars_before, double dollars_after, double runs_per_month, double once);

}  // namespace tundish::planner
