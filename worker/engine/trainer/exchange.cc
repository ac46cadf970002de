#include "worker/engine/trainer/exchange.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace tundish::trainer {

std::vector<int64_t> GatherNumbers(device::Communicator* group, at::Device device, int rank,
                                   int size, std::span<const int64_t> numbers) {
  if (group == nullptr) return {numbers.begin(), numbers.end()};
  const c10::AutoGradMode no_grad(false);
  const auto count = static_cast<int64_t>(numbers.size());
  // A slot for each: adding zeros leaves them as they are.
  at::Tensor slots = at::zeros({size * count}, at::kLong);
  std::ranges::copy(numbers, slots.mutable_data_ptr<int64_t>() + rank * count);
  slots = slots.to(device);
  group->AllReduceSum(slots);
  slots = slots.cpu();
  const int64_t* values = slots.const_data_ptr<int64_t>();
  return {values, values + slots.numel()};
}

std::vector<int64_t> PackText(const std::string& text, size_t words) {
  std::vector<int64_t> packed(words, 0);
  std::memcpy(packed.data(), text.data(), std::min(text.size(), words * sizeof(int64_t)));
  return packed;
}

std::string UnpackText(std::span<const int64_t> words) {
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const auto* end = static_cast<const char*>(std::memchr(bytes, 0, words.size_bytes()));
  return {bytes, end != nullptr ? end : bytes + words.size_bytes()};
}

}  // namespace tundish::trainer
