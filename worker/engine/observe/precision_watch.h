#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "worker/engine/observe/operator_watch.h"

namespace tundish::observe {

/// Proves of what it watches that every matrix product (linear layers, attention, convolutions;
/// forward and backward) ran in the asked precision, and that every tensor lay on the rank's
/// device. Both faults are silent otherwise: results stay plausible, only the speed is gone.
/// Copies between devices, and views of what will be copied, may touch other devices.
class PrecisionWatch final : public OperatorWatch {
 public:
  PrecisionWatch(at::Device device, at::ScalarType asked) : device_(device), asked_(asked) {}

  struct Fault {
    std::string reason;   ///< "wrong_precision" or "wrong_device"
    std::string message;  ///< names operator, module path and dtype or device
  };

  bool needs_inputs() const override { return true; }
  void Before(const OperatorCall& call) override;

  /// Watches nothing while inactive. Active at first.
  void set_active(bool active) { active_ = active; }

  /// The first one.
  const std::optional<Fault>& fault() const { return fault_; }
  int64_t operators() const { return operators_; }
  /// Matrix products that ran, after autocast.
  int64_t matmuls() const { return matmuls_; }

 private:
  void CheckDevice(const OperatorCall& call);
  void CheckPrecision(const OperatorCall& call);

  const at::Device device_;
  const at::ScalarType asked_;
  bool active_ = true;
  std::optional<Fault> fault_;
  int64_t operators_ = 0;
  int64_t matmuls_ = 0;
};

/// "fp32", "bf16", "fp16", "fp64", else LibTorch's name.
std::string TypeName(at::ScalarType type);

}  // namespace tundish::observe
