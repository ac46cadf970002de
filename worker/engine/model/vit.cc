#include "worker/engine/model/vit.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "worker/engine/model/initialize.h"
#include "worker/engine/observe/module_path.h"

namespace tundish::model {
namespace {

const VitShape& Checked(const VitShape& shape, int degree) {
  const absl::Status valid = shape.Validate(degree);
  TORCH_CHECK(valid.ok(), std::string(valid.message()));
  return shape;
}

/// Hands out the arena's tensors in the order of ListParameters.
class Cursor {
 public:
  explicit Cursor(std::vector<Parameter>& parameters) : parameters_(parameters) {}

  at::Tensor Next() { return parameters_.at(index_++).value; }
  bool AtEnd() const { return index_ == parameters_.size(); }

 private:
  std::vector<Parameter>& parameters_;  // Of the constructor's caller, for one call.
  size_t index_ = 0;
};

}  // namespace

Vit::Vit(const VitShape& shape, const parallel::GroupSlot& slot, at::Device device)
    : shape_(Checked(shape, slot.size())),
      slot_(slot),
      arena_(ListParameters(shape_), slot.size(), device) {
  BindViews();
}

void Vit::BindViews() {
  Cursor cursor(arena_.parameters());
  const auto pair = [&cursor](auto& layer) {
    layer.weight = cursor.Next();
    layer.bias = cursor.Next();
  };
  if (shape_.pooling == Pooling::kClassToken) class_token_ = cursor.Next();
  position_table_ = cursor.Next();
  pair(patch_projection_);
  blocks_.resize(static_cast<size_t>(shape_.depth));
  for (Block& block : blocks_) {
    pair(block.norm1);
    pair(block.qkv);
    pair(block.proj);
    pair(block.norm2);
    pair(block.fc1);
    pair(block.fc2);
  }
  pair(final_norm_);
  pair(head_);
  TORCH_CHECK(cursor.AtEnd(), "the model does not use all its parameters");
}

void Vit::InitializeFromSeed(uint64_t seed) {
  const c10::AutoGradMode no_grad(false);
  arena_.ClearState();
  for (Parameter& parameter : parameters()) {
    parameter.value.copy_(
        CutForRank(InitialValue(parameter.spec, seed), parameter.spec, slot_.rank(), slot_.size()));
  }
}

void Vit::LoadFull(const std::map<std::string, at::Tensor>& full_by_name) {
  for (const auto& [name, tensor] : full_by_name) {
    const bool known = std::ranges::any_of(
        parameters(), [&name = name](const Parameter& p) { return p.spec.name == name; });
    TORCH_CHECK(known, "the weights hold '", name, "', which this model does not have");
  }
  for (const Parameter& parameter : parameters()) {
    const auto found = full_by_name.find(parameter.spec.name);
    TORCH_CHECK(found != full_by_name.end(), "the weights lack '", parameter.spec.name, "'");
    TORCH_CHECK(found->second.sizes() == at::IntArrayRef(parameter.spec.full_shape), "'",
                parameter.spec.name, "' has shape ", found->second.sizes(),
                " in the weights, the model needs ", at::IntArrayRef(parameter.spec.full_shape));
  }
  const c10::AutoGradMode no_grad(false);
  arena_.ClearState();
  for (Parameter& parameter : parameters()) {
    parameter.value.copy_(CutForRank(full_by_name.at(parameter.spec.name), parameter.spec,
                                     slot_.rank(), slot_.size()));
  }
}

at::Tensor Vit::Forward(const at::Tensor& images_bchw, const std::optional<DropPathKey>& key) {
  at::Tensor x_bsd = Embed(images_bchw);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const observe::ModuleScope scope("blocks", static_cast<int64_t>(i));
    const auto branch = static_cast<int64_t>(2 * i);
    x_bsd = AddBranch(x_bsd, Attend(Normalize(x_bsd, block.norm1), block), block.proj.bias, key,
                      branch);
    x_bsd = AddBranch(x_bsd, Mlp(Normalize(x_bsd, block.norm2), block), block.fc2.bias, key,
                      branch + 1);
  }
  // The class token's norm does not depend on the other tokens, so only what the head reads is
  // normalised.
  const at::Tensor pooled_bd =
      shape_.pooling == Pooling::kClassToken ? x_bsd.select(1, 0) : x_bsd.mean(1);
  const observe::ModuleScope scope("head");
  return at::linear(Normalize(pooled_bd, final_norm_), head_.weight, head_.bias);
}

at::Tensor Vit::Embed(const at::Tensor& images_bchw) const {
  const observe::ModuleScope scope("patch_embed");
  const int64_t size = shape_.image_size;
  const int64_t p = shape_.patch_size;
  const int64_t grid = size / p;
  const int64_t b = images_bchw.size(0);
  TORCH_CHECK(images_bchw.sizes() == at::IntArrayRef({b, shape_.channels, size, size}),
              "images have shape ", images_bchw.sizes(), ", expected ",
              at::IntArrayRef({b, shape_.channels, size, size}));
  // A convolution whose stride is its width is a matmul over the unfolded patches.
  const at::Tensor patches_bsk = images_bchw.view({b, shape_.channels, grid, p, grid, p})
                                     .permute({0, 2, 4, 1, 3, 5})
                                     .reshape({b, grid * grid, shape_.channels * p * p});
  at::Tensor x_bsd =
      at::linear(patches_bsk, patch_projection_.weight.flatten(1), patch_projection_.bias);
  if (class_token_.defined()) {
    const at::Tensor token_b1d = class_token_.expand({b, 1, shape_.hidden}).to(x_bsd.scalar_type());
    x_bsd = at::cat({token_b1d, x_bsd}, 1);
  }
  return x_bsd + position_table_;
}

at::Tensor Vit::Normalize(const at::Tensor& x, const Norm& norm) const {
  return at::layer_norm(x, {shape_.hidden}, norm.weight, norm.bias, shape_.layer_norm_eps);
}

at::Tensor Vit::Attend(const at::Tensor& x_bsd, const Block& block) const {
  const observe::ModuleScope scope("attn");
  const int64_t b = x_bsd.size(0);
  const int64_t s = x_bsd.size(1);
  const int64_t local_heads = shape_.heads / slot_.size();
  const at::Tensor input_bsd = parallel::CopyToGroup(x_bsd, slot_);
  const std::vector<at::Tensor> qkv_bhsw = at::linear(input_bsd, block.qkv.weight, block.qkv.bias)
                                               .view({b, s, 3, local_heads, shape_.head_width()})
                                               .permute({2, 0, 3, 1, 4})
                                               .unbind(0);
  const at::Tensor mixed_bsk =
      at::scaled_dot_product_attention(qkv_bhsw[0], qkv_bhsw[1], qkv_bhsw[2])
          .transpose(1, 2)
          .reshape({b, s, local_heads * shape_.head_width()});
  return parallel::ReduceFromGroup(at::linear(mixed_bsk, block.proj.weight), slot_);
}

at::Tensor Vit::Mlp(const at::Tensor& x_bsd, const Block& block) const {
  const observe::ModuleScope scope("mlp");
  const at::Tensor inner_bsk =
      at::gelu(at::linear(parallel::CopyToGroup(x_bsd, slot_), block.fc1.weight, block.fc1.bias));
  return parallel::ReduceFromGroup(at::linear(inner_bsk, block.fc2.weight), slot_);
}

at::Tensor Vit::AddBranch(const at::Tensor& x_bsd, const at::Tensor& branch_bsd,
                          const at::Tensor& bias_d, const std::optional<DropPathKey>& key,
                          int64_t branch) const {
  // The bias of a row-parallel layer is whole on every rank: added once, after the group's sum.
  const double rate = DropPathRate(shape_.drop_path_rate, branch / 2, shape_.depth);
  if (!key.has_value() || rate == 0) return (x_bsd + branch_bsd).add_(bias_d);
  const at::Tensor scale_b11 =
      DropPathScale(*key, branch, x_bsd.size(0), rate).to(x_bsd.device(), x_bsd.scalar_type());
  return x_bsd + (branch_bsd + bias_d) * scale_b11;
}

}  // namespace tundish::model
