#include "worker/engine/model/parameter.h"

#include <utility>

#include <c10/util/Exception.h>
#include <fmt/core.h>

namespace tundish::model {
namespace {

/// The dim that is cut, and how many equal groups of it are cut alike.
struct CutPlan {
  int64_t dim = 0;
  int64_t groups = 1;
};

CutPlan PlanOf(const ParameterSpec& spec) {
  switch (spec.cut) {
    case Cut::kColumns:
      return {static_cast<int64_t>(spec.full_shape.size()) - 1, 1};
    case Cut::kQkvRows:
      return {0, 3};
    default:
      return {0, 1};
  }
}

/// `full` seen as [.., groups, rest of the dim, ..], narrowed to the rank's part of each group.
at::Tensor RankView(const at::Tensor& full, const ParameterSpec& spec, int rank, int degree) {
  const CutPlan plan = PlanOf(spec);
  const int64_t per_group = spec.full_shape[plan.dim] / plan.groups;
  const int64_t per_rank = per_group / degree;
  return full.unflatten(plan.dim, {plan.groups, per_group})
      .narrow(plan.dim + 1, rank * per_rank, per_rank);
}

/// Collects the specs of one model. What is added takes the current layer and, when it is whole
/// under a cut of the tokens, a partial gradient.
class SpecList {
 public:
  explicit SpecList(const Sharding& sharding) : sharding_(sharding) {}

  void EnterLayer(int64_t layer) { layer_ = layer; }
  /// From here on every rank sees all tokens.
  void LeaveSequence() { sharding_.sequence = false; }

  ParameterSpec& Add(std::string name, std::vector<int64_t> shape, Cut cut, Start start) {
    const bool prefix = name == "cls_token" || name == "reg_token";
    ParameterSpec& spec = specs_.emplace_back();
    spec.decay = shape.size() > 1 && name != "pos_embed" && !prefix;
    spec.name = std::move(name);
    spec.cut = cut;
    spec.full_shape = std::move(shape);
    spec.start = start;
    spec.layer = layer_;
    spec.partial_gradient = cut == Cut::kReplicated && sharding_.sequence;
    return spec;
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, Cut weight_cut, Cut bias_cut) {
    Add(name + ".weight", {out, in}, weight_cut, Start::kTruncatedNormal);
    Add(name + ".bias", {out}, bias_cut, Start::kZeros);
  }

  void AddNorm(const std::string& name, int64_t width) {
    Add(name + ".weight", {width}, Cut::kReplicated, Start::kOnes);
    Add(name + ".bias", {width}, Cut::kReplicated, Start::kZeros);
  }

  /// The norm of each head's queries or keys: with cut heads a rank sees only its own.
  void AddHeadNorm(const std::string& name, int64_t width) {
    AddNorm(name, width);
    if (!sharding_.attention_heads) return;
    for (size_t back = 1; back <= 2; ++back) specs_[specs_.size() - back].partial_gradient = true;
  }

  void AddLayerScale(const std::string& name, const VitShape& shape) {
    if (shape.layer_scale == 0) return;
    Add(name + ".gamma", {shape.hidden}, Cut::kReplicated, Start::kConstant).start_value =
        shape.layer_scale;
  }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  Sharding sharding_;
  int64_t layer_ = 0;
  std::vector<ParameterSpec> specs_;
};

void AddEmbedding(const VitShape& shape, const Sharding& sharding, SpecList& list) {
  const int64_t d = shape.hidden;
  const int64_t p = shape.patch_size;
  const Cut channels = sharding.embedding ? Cut::kColumns : Cut::kReplicated;
  const Cut rows = sharding.embedding ? Cut::kRows : Cut::kReplicated;
  if (shape.class_token) list.Add("cls_token", {1, 1, d}, channels, Start::kTinyNormal);
  if (shape.register_tokens > 0) {
    list.Add("reg_token", {1, shape.register_tokens, d}, channels, Start::kTinyNormal);
  }
  list.Add("pos_embed", {1, shape.positions(), d}, channels, Start::kTruncatedNormal);
  list.Add("patch_embed.proj.weight", {d, shape.channels, p, p}, rows, Start::kPatchProjection);
  list.Add("patch_embed.proj.bias", {d}, rows, Start::kZeros);
}

void AddBlock(const VitShape& shape, const Sharding& sharding, const std::string& block,
              SpecList& list) {
  const int64_t d = shape.hidden;
  const auto cut = [](bool sharded, Cut how) { return sharded ? how : Cut::kReplicated; };
  const Cut qkv = cut(sharding.attention_heads, Cut::kQkvRows);
  list.AddNorm(block + "norm1", d);
  list.AddLinear(block + "attn.qkv", 3 * d, d, qkv, qkv);
  if (shape.qk_norm) {
    list.AddHeadNorm(block + "attn.q_norm", shape.head_width());
    list.AddHeadNorm(block + "attn.k_norm", shape.head_width());
  }
  list.AddLinear(block + "attn.proj", d, d, cut(sharding.attention_heads, Cut::kColumns),
                 Cut::kReplicated);
  list.AddLayerScale(block + "ls1", shape);
  list.AddNorm(block + "norm2", d);
  const Cut fc1 = cut(sharding.mlp_intermediate, Cut::kRows);
  list.AddLinear(block + "mlp.fc1", shape.mlp_hidden, d, fc1, fc1);
  list.AddLinear(block + "mlp.fc2", d, shape.mlp_hidden,
                 cut(sharding.mlp_intermediate, Cut::kColumns), Cut::kReplicated);
  list.AddLayerScale(block + "ls2", shape);
}

}  // namespace

int64_t ParameterSpec::full_numel() const {
  int64_t numel = 1;
  for (const int64_t extent : full_shape) numel *= extent;
  return numel;
}

std::vector<int64_t> ParameterSpec::LocalShape(int degree) const {
  std::vector<int64_t> shape = full_shape;
  if (cut == Cut::kReplicated) return shape;
  const CutPlan plan = PlanOf(*this);
  TORCH_CHECK(shape[plan.dim] % (plan.groups * degree) == 0, name, " has ", shape[plan.dim],
              " rows or columns, which do not cut into ", plan.groups * degree, " equal parts");
  shape[plan.dim] /= degree;
  return shape;
}

std::vector<ParameterSpec> ListParameters(const VitShape& shape, const Sharding& sharding) {
  SpecList list(sharding);
  AddEmbedding(shape, sharding, list);
  for (int64_t i = 0; i < shape.depth; ++i) {
    list.EnterLayer(i + 1);
    AddBlock(shape, sharding, fmt::format("blocks.{}.", i), list);
  }
  list.LeaveSequence();
  if (!shape.norm_after_pooling) list.AddNorm("norm", shape.hidden);
  list.EnterLayer(shape.depth + 1);
  if (shape.norm_after_pooling) list.AddNorm("fc_norm", shape.hidden);
  list.AddLinear("head", shape.classes, shape.hidden, Cut::kReplicated, Cut::kReplicated);
  return list.Take();
}

at::Tensor CutForRank(const at::Tensor& full, const ParameterSpec& spec, int rank, int degree) {
  TORCH_CHECK(full.sizes() == at::IntArrayRef(spec.full_shape), spec.name, " has shape ",
              full.sizes(), ", expected ", at::IntArrayRef(spec.full_shape));
  if (spec.cut == Cut::kReplicated) return full.contiguous();
  return RankView(full, spec, rank, degree).reshape(spec.LocalShape(degree)).contiguous();
}

void PlaceSlice(at::Tensor& full, const at::Tensor& slice, const ParameterSpec& spec, int rank,
                int degree) {
  TORCH_CHECK(full.sizes() == at::IntArrayRef(spec.full_shape), spec.name, " has shape ",
              full.sizes(), ", expected ", at::IntArrayRef(spec.full_shape));
  const std::vector<int64_t> local = spec.LocalShape(degree);
  TORCH_CHECK(slice.sizes() == at::IntArrayRef(local), "the slice of ", spec.name, " has shape ",
              slice.sizes(), ", expected ", at::IntArrayRef(local));
  if (spec.cut == Cut::kReplicated) {
    full.copy_(slice);
    return;
  }
  at::Tensor place = RankView(full, spec, rank, degree);
  place.copy_(slice.reshape(place.sizes()));
}

}  // namespace tundish::model
