#include "server/planner/formulas.h"

#include <algorithm>

namespace tundish::planner {
namespace {

std::int64_t Patches(const v1::ModelSpec& model) {
  const std::int64_t side = model.image_size() / model.patch_size();
  return side * side;
}

/// Values of one patch, all channels.
std::int64_t PatchValues(const v1::ModelSpec& model) {
  return std::int64_t{model.channels()} * model.patch_size() * model.patch_size();
}

/// Everything outside the blocks: embedding, class token, positions, last norm, head.
std::int64_t OutsideParameters(const v1::ModelSpec& model, int classes) {
  const std::int64_t h = model.hidden();
  const std::int64_t embedding = PatchValues(model) * h + h;
  const std::int64_t head = h * classes + classes;
  return embedding + h + Tokens(model) * h + 2 * h + head;
}

}  // namespace

std::int64_t Tokens(const v1::ModelSpec& model) {
  return Patches(model) + 1;
}

double ForwardMacs(const v1::ModelSpec& model, int classes) {
  // In double: the numbers pass 2⁶³ for no model that passes validation, but a sum of products need
  // not prove it.
  const double h = model.hidden();
  const double m = model.mlp_hidden();
  const double s = static_cast<double>(Tokens(model));
  const double block = s * (4 * h * h + 2 * h * m) + 2 * s * s * h;
  const double embedding =
      static_cast<double>(PatchValues(model)) * static_cast<double>(Patches(model)) * h;
  return model.depth() * block + embedding + h * classes;
}

double FlopsPerImage(const v1::ModelSpec& model, int classes) {
  return 6 * ForwardMacs(model, classes);
}

std::int64_t Parameters(const v1::ModelSpec& model, int classes) {
  return ParametersPerRank(model, classes, 1);
}

std::int64_t ParametersPerRank(const v1::ModelSpec& model, int classes, int tensor) {
  const std::int64_t h = model.hidden();
  const std::int64_t m = model.mlp_hidden();
  // qkv and fc1 with their biases, proj and fc2 without.
  const std::int64_t cut = 3 * h * h + 3 * h + h * h + h * m + m + m * h;
  // Two norms, the biases of proj and fc2.
  const std::int64_t whole = 4 * h + 2 * h;
  return OutsideParameters(model, classes) + model.depth() * (cut / tensor + whole);
}

double BytesPerParameter(v1::Precision precision, bool zero1, int data) {
  const double moments = zero1 ? std::min(8.0, 16.0 / data) : 8.0;
  return 8.0 + moments + (precision == v1::BF16 ? 2.0 : 0.0);
}

std::int64_t ActivationBytesPerImage(const v1::ModelSpec& model, v1::Precision precision,
                                     int tensor, bool checkpointing) {
  const std::int64_t h = model.hidden();
  const std::int64_t m = model.mlp_hidden();
  // 8h + 4m = 24h at m = 4h.
  const std::int64_t per_token = precision == v1::BF16 ? 12 * h + (8 * h + 4 * m) / tensor
                                                       : 16 * h + (16 * h + 8 * m) / tensor;
  const std::int64_t block = Tokens(model) * per_token;
  return checkpointing ? model.depth() * 4 * Tokens(model) * h + block : model.depth() * block;
}

}  // namespace tundish::planner
