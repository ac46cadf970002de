#include "worker/engine/observe/non_finite_watch.h"

#include <limits>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

namespace tundish::observe {

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

void NonFiniteWatch::After(const OperatorCall& call) {
  const int64_t ordinal = ordinal_++;
  if (found_.has_value()) return;
  // Memory that nobody has written yet may hold anything.
  const std::string_view name = call.function.name();
  if (name.find("empty") != std::string_view::npos || name == "aten::resize_") return;
  for (const c10::IValue& output : call.function.outputs()) {
    bool bad = false;
    if (output.isTensor()) {
      bad = HasNonFinite(output.toTensor());
    } else if (output.isTensorList()) {
      for (const at::Tensor& tensor : output.toTensorVector()) bad = bad || HasNonFinite(tensor);
    }
    if (!bad) continue;
    found_ = Found{ordinal, fmt::format("the result of {} in {} ({})", name,
                                        call.module.empty() ? "no module" : call.module,
                                        call.backward ? "backward" : "forward")};
    return;
  }
}

}  // namespace tundish::observe
