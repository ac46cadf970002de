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

CutPlan PlanOf(Cut cut) {
  switch (cut) {
    case Cut::kColumns:
      return {1, 1};
    case Cut::kQkvRows:
      return {0, 3};
    default:
      return {0, 1};
  }
}

/// `full` seen as [.., groups, rest of the dim, ..], narrowed to the rank's part of each group.
at::Tensor RankView(const at::Tensor& full, const ParameterSpec& spec, int rank, int degree) {
  const CutPlan plan = PlanOf(spec.cut);
  const int64_t per_group = spec.full_shape[plan.dim] / plan.groups;
  const int64_t per_rank = per_group / degree;
  return full.unflatten(plan.dim, {plan.groups, per_group})
      .narrow(plan.dim + 1, rank * per_rank, per_rank);
}

class SpecList {
 public:
  void Add(std::string name, std::vector<int64_t> shape, Cut cut, Start start) {
    const bool decay = shape.size() > 1 && name != "pos_embed" && name != "cls_token";
    specs_.push_back({std::move(name), cut, std::move(shape), decay, start});
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, Cut weight_cut, Cut bias_cut) {
    Add(name + ".weight", {out, in}, weight_cut, Start::kTruncatedNormal);
    Add(name + ".bias", {out}, bias_cut, Start::kZeros);
  }

  void AddNorm(const std::string& name, int64_t width) {
    Add(name + ".weight", {width}, Cut::kReplicated, Start::kOnes);
    Add(name + ".bias", {width}, Cut::kReplicated, Start::kZeros);
  }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  std::vector<ParameterSpec> specs_;
};

}  // namespace

int64_t ParameterSpec::full_numel() const {
  int64_t numel = 1;
  for (const int64_t extent : full_shape) numel *= extent;
  return numel;
}

std::vector<int64_t> ParameterSpec::LocalShape(int degree) const {
  std::vector<int64_t> shape = full_shape;
  if (cut == Cut::kReplicated) return shape;
  const CutPlan plan = PlanOf(cut);
  TORCH_CHECK(shape[plan.dim] % (plan.groups * degree) == 0, name, " has ", shape[plan.dim],
              " rows or columns, which do not cut into ", plan.groups * degree, " equal parts");
  shape[plan.dim] /= degree;
  return shape;
}

std::vector<ParameterSpec> ListParameters(const VitShape& shape) {
  const int64_t d = shape.hidden;
  const int64_t p = shape.patch_size;
  SpecList list;
  if (shape.pooling == Pooling::kClassToken) {
    list.Add("cls_token", {1, 1, d}, Cut::kReplicated, Start::kTinyNormal);
  }
  list.Add("pos_embed", {1, shape.tokens(), d}, Cut::kReplicated, Start::kTruncatedNormal);
  list.Add("patch_embed.proj.weight", {d, shape.channels, p, p}, Cut::kReplicated,
           Start::kPatchProjection);
  list.Add("patch_embed.proj.bias", {d}, Cut::kReplicated, Start::kZeros);
  for (int64_t i = 0; i < shape.depth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    list.AddNorm(block + "norm1", d);
    list.AddLinear(block + "attn.qkv", 3 * d, d, Cut::kQkvRows, Cut::kQkvRows);
    list.AddLinear(block + "attn.proj", d, d, Cut::kColumns, Cut::kReplicated);
    list.AddNorm(block + "norm2", d);
    list.AddLinear(block + "mlp.fc1", shape.mlp_hidden, d, Cut::kRows, Cut::kRows);
    list.AddLinear(block + "mlp.fc2", d, shape.mlp_hidden, Cut::kColumns, Cut::kReplicated);
  }
  list.AddNorm(shape.pooling == Pooling::kMean ? "fc_norm" : "norm", d);
  list.AddLinear("head", shape.classes, d, Cut::kReplicated, Cut::kReplicated);
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
