#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/parameter.h"

namespace tundish::model {

/// All training state that a rank's shard needs besides scalars, in one flat fp32 tensor:
/// [ parameters | exp_avg | exp_avg_sq ], each third laid out alike, each parameter starting at a
/// multiple of 16 elements, gaps zero. Ranks of one column have the same layout, so that copying
/// the state to a replacement, comparing and hashing it are single operations.
class ParameterArena {
 public:
  /// Allocates zeros on `device`. Throws c10::Error when memory is short.
  ParameterArena(const std::vector<ParameterSpec>& specs, int tensor_degree, at::Device device);

  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  /// The whole state, 3 x section_numel() elements, no grad. Writing into it changes the model.
  const at::Tensor& state() const { return state_; }
  /// The first third: all parameter values.
  at::Tensor values() const { return state_.narrow(0, 0, section_numel_); }
  /// Elements of one third, gaps included.
  int64_t section_numel() const { return section_numel_; }

  /// In the order of the specs. The tensors keep their identity for the arena's lifetime.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// Zeros everywhere, moments included.
  void ClearState();

  /// Replaces the whole state, after a death-safe receive into `received` (same size).
  void Restore(const at::Tensor& received);

 private:
  int64_t section_numel_ = 0;
  at::Tensor state_;
  std::vector<Parameter> parameters_;
};

}  // namespace tundish::model
