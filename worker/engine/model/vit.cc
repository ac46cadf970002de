#include "worker/engine/model/vit.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "worker/engine/model/attention.h"
#include "worker/engine/model/initialize.h"
#include "worker/engine/model/load_report.h"
#include "worker/engine/model/recompute.h"
#include "worker/engine/observe/module_path.h"

namespace tundish::model {
namespace {

const VitShape& Checked(const VitShape& shape, int degree, const Sharding& sharding) {
  const absl::Status valid = shape.Validate(degree, sharding);
  TORCH_CHECK(valid.ok(), std::string(valid.message()));
  return shape;
}

/// Hands out the arena's tensors in the order of ListParameters.
class Cursor {
 public:
  Cursor(std::vector<Parameter>& parameters, bool average)
      : parameters_(parameters), average_(average) {}

  at::Tensor Next() {
    const Parameter& parameter = parameters_.at(index_++);
    const at::Tensor& tensor = average_ ? parameter.average : parameter.value;
    if (list_ != nullptr) list_->push_back(tensor);
    return tensor;
  }
  /// What follows is also appended to `list`; null ends that.
  void StartList(std::vector<at::Tensor>* list) { list_ = list; }
  bool AtEnd() const { return index_ == parameters_.size(); }

 private:
  std::vector<Parameter>& parameters_;  // Of the constructor's caller, for one call.
  const bool average_;
  std::vector<at::Tensor>* list_ = nullptr;
  size_t index_ = 0;
};

// Dropout sites: the embedding, then three per block.
constexpr int64_t kEmbeddingSite = 0;
int64_t BranchSite(int64_t branch) {
  return 1 + 3 * (branch / 2) + branch % 2;
}
int64_t AttentionSite(int64_t block) {
  return 3 + 3 * block;
}

}  // namespace

Vit::Vit(const VitShape& shape, const parallel::GroupSlot& slot, at::Device device,
         const VitOptions& options)
    : shape_(Checked(shape, slot.size(), options.sharding)),
      slot_(slot),
      options_(options),
      arena_(ListParameters(shape_, options.sharding), slot.size(), device, options.keep_average),
      trained_(Bind(/*average=*/false)),
      average_(options.keep_average ? Bind(/*average=*/true) : Weights()),
      active_(&trained_) {}

Vit::Weights Vit::Bind(bool average) {
  Weights weights;
  Cursor cursor(arena_.parameters(), average);
  const auto pair = [&cursor](auto& layer) {
    layer.weight = cursor.Next();
    layer.bias = cursor.Next();
  };
  if (shape_.class_token) weights.class_token = cursor.Next();
  if (shape_.register_tokens > 0) weights.register_tokens = cursor.Next();
  weights.position_table = cursor.Next();
  pair(weights.patch_projection);
  weights.blocks.resize(static_cast<size_t>(shape_.depth));
  for (Block& block : weights.blocks) {
    cursor.StartList(&block.weights);
    pair(block.norm1);
    pair(block.qkv);
    if (shape_.qk_norm) {
      pair(block.q_norm);
      pair(block.k_norm);
    }
    pair(block.proj);
    if (shape_.layer_scale > 0) block.gamma1 = cursor.Next();
    pair(block.norm2);
    pair(block.fc1);
    pair(block.fc2);
    if (shape_.layer_scale > 0) block.gamma2 = cursor.Next();
    cursor.StartList(nullptr);
  }
  pair(weights.final_norm);
  pair(weights.head);
  TORCH_CHECK(cursor.AtEnd(), "the model does not use all its parameters");
  return weights;
}

void Vit::UseAverage(bool use) {
  TORCH_CHECK(!use || options_.keep_average, "no average of the weights is kept");
  active_ = use ? &average_ : &trained_;
}

void Vit::InitializeFromSeed(uint64_t seed) {
  const c10::AutoGradMode no_grad(false);
  arena_.ClearState();
  for (Parameter& parameter : parameters()) {
    parameter.value.copy_(
        CutForRank(InitialValue(parameter.spec, seed), parameter.spec, slot_.rank(), slot_.size()));
  }
  arena_.StartAverage();
}

void Vit::LoadFull(const std::map<std::string, at::Tensor>& full_by_name) {
  CheckFits(ListParameters(shape_, options_.sharding), full_by_name);
  const c10::AutoGradMode no_grad(false);
  arena_.ClearState();
  for (Parameter& parameter : parameters()) {
    parameter.value.copy_(CutForRank(full_by_name.at(parameter.spec.name), parameter.spec,
                                     slot_.rank(), slot_.size()));
  }
  arena_.StartAverage();
}

void Vit::SumPartialGradients() {
  std::vector<at::Tensor*> gradients;
  for (Parameter& parameter : parameters()) {
    if (parameter.spec.partial_gradient) gradients.push_back(&parameter.value.mutable_grad());
  }
  parallel::SumOverGroup(std::move(gradients), slot_);
}

at::Tensor Vit::Forward(const at::Tensor& images_bchw, const std::optional<MaskKey>& key) {
  const bool sequence = options_.sharding.sequence;
  at::Tensor x_bkd = Embed(images_bchw, key);
  if (sequence) x_bkd = parallel::SliceTokens(x_bkd, slot_);
  const int64_t every = options_.recompute_every;
  for (int64_t i = 0; i < shape_.depth; ++i) {
    if (every > 0 && (i + 1) % every == 0) {
      const auto body = [this, i, key](const at::Tensor& x) { return RunBlock(i, x, key); };
      x_bkd = Recompute(body, x_bkd, block(i).weights);
    } else {
      x_bkd = RunBlock(i, x_bkd, key);
    }
  }
  // All that follows is the same on every rank.
  const at::Tensor x_bsd =
      sequence ? parallel::GatherTokens(x_bkd, shape_.tokens(), /*sum=*/false, slot_) : x_bkd;
  const observe::ModuleScope scope("head");
  return at::linear(Pool(x_bsd), active_->head.weight, active_->head.bias);
}

at::Tensor Vit::Embed(const at::Tensor& images_bchw, const std::optional<MaskKey>& key) const {
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
  at::Tensor x_bsd = at::linear(patches_bsk, active_->patch_projection.weight.flatten(1),
                                active_->patch_projection.bias);
  if (!shape_.prefix_positions) x_bsd = x_bsd + active_->position_table;
  if (shape_.prefix_tokens() > 0) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tokens : {active_->class_token, active_->register_tokens}) {
      if (!tokens.defined()) continue;
      parts.push_back(tokens.expand({b, tokens.size(1), tokens.size(2)}).to(x_bsd.scalar_type()));
    }
    parts.push_back(x_bsd);
    x_bsd = at::cat(parts, 1);
  }
  if (shape_.prefix_positions) x_bsd = x_bsd + active_->position_table;
  if (options_.sharding.embedding) {
    // With cut tokens each rank's gradient covers its own tokens only.
    x_bsd = parallel::GatherChannels(x_bsd, /*sum=*/options_.sharding.sequence, slot_);
  }
  if (!key.has_value() || shape_.dropout == 0) return x_bsd;
  const at::Tensor scale =
      DropoutScale(*key, kEmbeddingSite, b, 0, x_bsd.size(1) * x_bsd.size(2), shape_.dropout);
  return x_bsd * scale.view(x_bsd.sizes()).to(x_bsd.device(), x_bsd.scalar_type());
}

at::Tensor Vit::RunBlock(int64_t index, const at::Tensor& x_bkd,
                         const std::optional<MaskKey>& key) const {
  const observe::ModuleScope scope("blocks", index);
  const Block& block = this->block(index);
  const at::Tensor middle_bkd = AddBranch(x_bkd, Attend(Normalize(x_bkd, block.norm1), index, key),
                                          block.proj.bias, block.gamma1, key, 2 * index);
  return AddBranch(middle_bkd, Mlp(Normalize(middle_bkd, block.norm2), block), block.fc2.bias,
                   block.gamma2, key, 2 * index + 1);
}

at::Tensor Vit::Normalize(const at::Tensor& x, const Norm& norm) const {
  return at::layer_norm(x, norm.weight.sizes(), norm.weight, norm.bias, shape_.layer_norm_eps);
}

at::Tensor Vit::EnterLayer(const at::Tensor& x_bkd, bool sharded) const {
  if (options_.sharding.sequence) {
    // Also a layer that is whole is read for this rank's tokens only: partial gradients either way.
    return parallel::GatherTokens(x_bkd, shape_.tokens(), /*sum=*/true, slot_);
  }
  return sharded ? parallel::CopyToGroup(x_bkd, slot_) : x_bkd;
}

at::Tensor Vit::LeaveLayer(at::Tensor x_bsd, bool sharded) const {
  if (options_.sharding.sequence) {
    return sharded ? parallel::ReduceScatterTokens(x_bsd, slot_)
                   : parallel::SliceTokens(x_bsd, slot_);
  }
  return sharded ? parallel::ReduceFromGroup(std::move(x_bsd), slot_) : x_bsd;
}

at::Tensor Vit::Attend(const at::Tensor& x_bkd, int64_t index,
                       const std::optional<MaskKey>& key) const {
  const observe::ModuleScope scope("attn");
  const Block& block = this->block(index);
  const bool sharded = options_.sharding.attention_heads;
  const int64_t heads = sharded ? shape_.heads / slot_.size() : shape_.heads;
  const at::Tensor input_bsd = EnterLayer(x_bkd, sharded);
  const int64_t b = input_bsd.size(0);
  const int64_t s = input_bsd.size(1);
  std::vector<at::Tensor> qkv_bhsw = at::linear(input_bsd, block.qkv.weight, block.qkv.bias)
                                         .view({b, s, 3, heads, shape_.head_width()})
                                         .permute({2, 0, 3, 1, 4})
                                         .unbind(0);
  if (shape_.qk_norm) {
    qkv_bhsw[0] = Normalize(qkv_bhsw[0], block.q_norm).to(qkv_bhsw[2].scalar_type());
    qkv_bhsw[1] = Normalize(qkv_bhsw[1], block.k_norm).to(qkv_bhsw[2].scalar_type());
  }
  at::Tensor scale_bhss;
  if (key.has_value() && shape_.attention_dropout > 0) {
    const int64_t first_head = sharded ? slot_.rank() * heads : 0;
    scale_bhss = DropoutScale(*key, AttentionSite(index), b, first_head * s * s, heads * s * s,
                              shape_.attention_dropout)
                     .view({b, heads, s, s})
                     .to(x_bkd.device(), qkv_bhsw[0].scalar_type());
  }
  const at::Tensor mixed_bsk = MixHeads(qkv_bhsw[0], qkv_bhsw[1], qkv_bhsw[2], scale_bhss)
                                   .transpose(1, 2)
                                   .reshape({b, s, heads * shape_.head_width()});
  return LeaveLayer(at::linear(mixed_bsk, block.proj.weight), sharded);
}

at::Tensor Vit::Mlp(const at::Tensor& x_bkd, const Block& block) const {
  const observe::ModuleScope scope("mlp");
  const bool sharded = options_.sharding.mlp_intermediate;
  const at::Tensor inner_bsk =
      at::gelu(at::linear(EnterLayer(x_bkd, sharded), block.fc1.weight, block.fc1.bias));
  return LeaveLayer(at::linear(inner_bsk, block.fc2.weight), sharded);
}

at::Tensor Vit::AddBranch(const at::Tensor& x_bkd, const at::Tensor& branch_bkd,
                          const at::Tensor& bias_d, const at::Tensor& gamma_d,
                          const std::optional<MaskKey>& key, int64_t branch) const {
  // The bias of a row-parallel layer is whole on every rank: added once, after the group's sum.
  const double drop_path = DropPathRate(shape_.drop_path_rate, branch / 2, shape_.depth);
  const bool drops = key.has_value() && (drop_path > 0 || shape_.dropout > 0);
  if (!drops && !gamma_d.defined()) return (x_bkd + branch_bkd).add_(bias_d);
  at::Tensor added_bkd = branch_bkd + bias_d;
  const auto like_added = [&added_bkd](const at::Tensor& scale) {
    return scale.to(added_bkd.device(), added_bkd.scalar_type());
  };
  if (drops && shape_.dropout > 0) {
    const int64_t count = x_bkd.size(1) * x_bkd.size(2);
    const int64_t first = options_.sharding.sequence ? slot_.rank() * count : 0;
    const at::Tensor scale =
        DropoutScale(*key, BranchSite(branch), x_bkd.size(0), first, count, shape_.dropout);
    added_bkd = added_bkd * like_added(scale.view(x_bkd.sizes()));
  }
  if (gamma_d.defined()) added_bkd = added_bkd * gamma_d;
  if (drops && drop_path > 0) {
    added_bkd = added_bkd * like_added(DropPathScale(*key, branch, x_bkd.size(0), drop_path));
  }
  return x_bkd + added_bkd;
}

/// What the head reads, [b, d].
at::Tensor Vit::Pool(const at::Tensor& x_bsd) const {
  // The class token's norm does not depend on the other tokens, so only what the head reads is
  // normalised, whichever comes first.
  if (shape_.pooling == Pooling::kClassToken)
    return Normalize(x_bsd.select(1, 0), active_->final_norm);
  const at::Tensor patches_bsd = x_bsd.narrow(1, shape_.prefix_tokens(), shape_.patches());
  return shape_.norm_after_pooling ? Normalize(patches_bsd.mean(1), active_->final_norm)
                                   : Normalize(patches_bsd, active_->final_norm).mean(1);
}

}  // namespace tundish::model
