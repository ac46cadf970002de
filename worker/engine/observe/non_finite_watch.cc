#include "worker/engine/observe/non_finite_watch.h"

#include <limits>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

namespace tundish::observe {
namespace {

bool AnyNonFinite(c10::ArrayRef<const c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && HasNonFinite(value.toTensor())) return true;
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (HasNonFinite(tensor)) return true;
    }
  }
  return false;
}

}  // namespace

bool HasNonFinite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.is_meta() || tensor.is_sparse() ||
      !c10::isFloatingType(tensor.scalar_type())) {
    return false;
  }
  const c10::AutoGradMode no_grad(false);
  const at::Tensor values = tensor.detach();
  return values.isnan().any().item<bool>() ||
         values.eq(std::numeric_limits<double>::infinity()).any().item<bool>();
}

void NonFiniteWatch::Before(const OperatorCall& call) {
  if (call.function.scope() != at::RecordScope::FUNCTION) return;
  bad_input_.push_back(!found_.has_value() && AnyNonFinite(call.function.inputs()));
}

void NonFiniteWatch::After(const OperatorCall& call) {
  if (call.function.scope() != at::RecordScope::FUNCTION) return;
  const int64_t ordinal = ordinal_++;
  const bool bad_input = bad_input_.back();
  bad_input_.pop_back();
  if (found_.has_value() || bad_input) return;
  // Memory that nobody has written yet may hold anything.
  const std::string_view name = call.function.name();
  if (name.find("empty") != std::string_view::npos || name == "aten::resize_") return;
  const std::vector<c10::IValue>& outputs = call.function.outputs();
  if (!AnyNonFinite(c10::ArrayRef<const c10::IValue>(outputs.data(), outputs.size()))) return;
  found_ = Found{ordinal, fmt::format("the result of {} in {} ({})", name,
                                      call.module.empty() ? "no module" : call.module,
                                      call.backward ? "backward" : "forward")};
}

}  // namespace tundish::observe
