#include "worker/engine/observe/precision_watch.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>

namespace tundish::observe {
namespace {

constexpr auto kMatmuls = std::to_array<std::string_view>({
    "aten::mm",
    "aten::addmm",
    "aten::_addmm_activation",
    "aten::bmm",
    "aten::baddbmm",
    "aten::addbmm",
    "aten::mv",
    "aten::addmv",
    "aten::linear",
    "aten::linear_backward",
    "aten::matmul",
    "aten::matmul_backward",
    "aten::mkldnn_linear",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::conv2d",
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward",
});

// They move values between devices, or describe values that will be moved.
constexpr auto kStaging = std::to_array<std::string_view>(
    {"aten::to",         "aten::_to_copy",  "aten::copy_",     "aten::_local_scalar_dense",
     "aten::item",       "aten::detach",    "aten::view",      "aten::_unsafe_view",
     "aten::reshape",    "aten::narrow",    "aten::slice",     "aten::select",
     "aten::as_strided", "aten::expand",    "aten::unsqueeze", "aten::squeeze",
     "aten::alias",      "aten::flatten",   "aten::unflatten", "aten::pin_memory",
     "aten::is_pinned",  "aten::contiguous"});

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Attention keeps the softmax's sums and a generator's state beside the products.
bool IsOperand(std::string_view argument) {
  return !argument.starts_with("logsumexp") && !argument.starts_with("philox") &&
         !argument.starts_with("rng") && !argument.starts_with("attn_mask") &&
         !argument.starts_with("attn_bias");
}

// True when autocast catches the call, casts its inputs and calls it again.
bool WillBeCast(const at::RecordFunction& function, at::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return false;
  const auto name = function.operator_name();
  if (!name.has_value()) return false;
  const auto found = c10::Dispatcher::singleton().findOp(*name);
  return found.has_value() && found->hasKernelForDispatchKey(
                                  at::autocast::get_autocast_dispatch_key_from_device_type(device));
}

std::string Where(const OperatorCall& call) {
  return fmt::format("{} in {} ({})", call.function.name(),
                     call.module.empty() ? "no module" : call.module,
                     call.backward ? "backward" : "forward");
}

}  // namespace

std::string TypeName(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    case at::kDouble:
      return "fp64";
    default:
      return c10::toString(type);
  }
}

void PrecisionWatch::Before(const OperatorCall& call) {
  if (!active_ || call.function.scope() != at::RecordScope::FUNCTION) return;
  ++operators_;
  if (fault_.has_value()) return;
  CheckDevice(call);
  if (!fault_.has_value()) CheckPrecision(call);
}

void PrecisionWatch::CheckDevice(const OperatorCall& call) {
  const auto check = [&](const at::Tensor& tensor) {
    // A number that became a tensor has no dims and lies on the CPU.
    if (!tensor.defined() || tensor.dim() == 0 || tensor.device() == device_) return;
    if (fault_.has_value() || Contains(kStaging, call.function.name())) return;
    fault_ = Fault{"wrong_device", fmt::format("{} got a {} tensor on {}, this rank's device is {}",
                                               Where(call), TypeName(tensor.scalar_type()),
                                               tensor.device().str(), device_.str())};
  };
  for (const c10::IValue& input : call.function.inputs()) {
    if (input.isTensor()) {
      check(input.toTensor());
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) check(tensor);
    }
  }
}

void PrecisionWatch::CheckPrecision(const OperatorCall& call) {
  if (!Contains(kMatmuls, call.function.name())) return;
  if (WillBeCast(call.function, device_.type())) return;
  ++matmuls_;
  const auto schema = call.function.operator_schema();
  const auto inputs = call.function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].isTensor() || !inputs[i].toTensor().defined()) continue;
    const at::ScalarType type = inputs[i].toTensor().scalar_type();
    if (!c10::isFloatingType(type) || type == asked_) continue;
    const bool named = schema.has_value() && i < schema->arguments().size();
    if (named && !IsOperand(schema->arguments()[i].name())) continue;
    fault_ = Fault{"wrong_precision",
                   fmt::format("{} ran on {}{}, training.precision asks for {} in every matrix "
                               "product",
                               Where(call), TypeName(type),
                               named ? fmt::format(" (its '{}')", schema->arguments()[i].name())
                                     : std::string(),
                               TypeName(asked_))};
    return;
  }
}

}  // namespace tundish::observe
