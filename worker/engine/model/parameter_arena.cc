#include "worker/engine/model/parameter_arena.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace tundish::model {
namespace {

/// 64 bytes: a cache line, and the widest vector register.
constexpr int64_t kAlignment = 16;

int64_t Aligned(int64_t numel) {
  return (numel + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t Numel(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  return numel;
}

}  // namespace

ParameterArena::ParameterArena(const std::vector<ParameterSpec>& specs, int tensor_degree,
                               at::Device device, bool keep_average)
    : sections_(keep_average ? 4 : 3) {
  for (const ParameterSpec& spec : specs) {
    section_numel_ += Aligned(Numel(spec.LocalShape(tensor_degree)));
  }
  state_ =
      at::zeros({sections_ * section_numel_}, at::TensorOptions().dtype(at::kFloat).device(device));
  int64_t offset = 0;
  for (const ParameterSpec& spec : specs) {
    const std::vector<int64_t> shape = spec.LocalShape(tensor_degree);
    // detach(): a leaf of its own, whose grad and version are not the arena's.
    const auto view = [&](int64_t section) {
      return state_.narrow(0, section * section_numel_ + offset, Numel(shape)).view(shape).detach();
    };
    Parameter parameter{spec, view(0), view(1), view(2), keep_average ? view(3) : at::Tensor()};
    parameter.value.requires_grad_(true);
    parameters_.push_back(std::move(parameter));
    offset += Aligned(Numel(shape));
  }
}

void ParameterArena::ClearState() {
  const c10::AutoGradMode no_grad(false);
  state_.zero_();
}

void ParameterArena::StartAverage() {
  const c10::AutoGradMode no_grad(false);
  if (keeps_average()) averages().copy_(values());
}

void ParameterArena::UpdateAverage(double decay) {
  const c10::AutoGradMode no_grad(false);
  if (keeps_average()) averages().lerp_(values(), 1 - decay);
}

void ParameterArena::Restore(const at::Tensor& received) {
  TORCH_CHECK(received.sizes() == state_.sizes(), "received a state of ", received.numel(),
              " elements, this rank's has ", state_.numel());
  const c10::AutoGradMode no_grad(false);
  state_.copy_(received);
}

}  // namespace tundish::model
