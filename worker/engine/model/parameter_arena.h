#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/model/parameter.h"

namespace tundish::model {

/// All training state that a rank's shard needs besides scalars, in one flat fp32 tensor:
/// [ parameters | exp_avg | exp_avg_sq ] and, where it is kept, [ average ], each section laid out
/// alike, each parameter starting at a multiple of 16 elements, gaps zero. Ranks of one column have
/// the same layout, so that copying the state to a replacement, comparing and hashing it are single
/// operations.
class ParameterArena {
 public:
  /// Allocates zeros on `device`. Throws c10::Error when memory is short.
  ParameterArena(const std::vector<ParameterSpec>& specs, int tensor_degree, at::Device device,
                 bool keep_average = false);

  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  /// The whole state, sections() x section_numel() elements, no grad. Writing into it changes the
  /// model.
  const at::Tensor& state() const { return state_; }
  /// The first section: all parameter values.
  at::Tensor values() const { return state_.narrow(0, 0, section_numel_); }
  /// The last section. Requires keeps_average().
  at::Tensor averages() const { return state_.narrow(0, 3 * section_numel_, section_numel_); }
  bool keeps_average() const { return sections_ == 4; }
  int64_t sections() const { return sections_; }
  /// Elements of one section, gaps included.
  int64_t section_numel() const { return section_numel_; }

  /// In the order of the specs. The tensors keep their identity for the arena's lifetime.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// Zeros everywhere, moments included.
  void ClearState();

  /// The average starts anew at the current values. Nothing without one.
  void StartAverage();

  /// average = decay x average + (1 - decay) x values. Nothing without one.
  void UpdateAverage(double decay);

  /// Replaces the whole state, after a death-safe receive into `received` (same size).
  void Restore(const at::Tensor& received);

 private:
  const int64_t sections_;
  int64_t section_numel_ = 0;
  at::Tensor state_;
  std::vector<Parameter> parameters_;
};

}  // namespace tundish::model
