#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/engine/observe/operator_watch.h"

namespace tundish::observe {

/// True when the tensor holds a NaN or positive infinity. Negative infinity alone is what masks are
/// made of; where it does harm, a NaN follows. False for types that have neither.
bool HasNonFinite(const at::Tensor& tensor);

/// Finds the first operator that made a value that is not finite out of finite ones: views of
/// memory that nobody has written yet, and operators that only pass a bad value on, do not count.
/// Slow: reads all inputs and results.
class NonFiniteWatch final : public OperatorWatch {
 public:
  bool needs_inputs() const override { return true; }
  bool needs_outputs() const override { return true; }
  void Before(const OperatorCall& call) override;
  void After(const OperatorCall& call) override;

  struct Found {
    int64_t ordinal = 0;  ///< Of the operator, from 0: of two ranks the smaller came first.
    std::string what;     ///< e.g. "the result of aten::mm in blocks.3.mlp (backward)"
  };
  const std::optional<Found>& found() const { return found_; }

 private:
  int64_t ordinal_ = 0;
  std::vector<bool> bad_input_;  ///< Of the operators under way.
  std::optional<Found> found_;
};

}  // namespace tundish::observe
