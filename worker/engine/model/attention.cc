#include "worker/engine/model/attention.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

namespace tundish::model {

at::Tensor MixHeads(const at::Tensor& q_bhsw, const at::Tensor& k_bhsw, const at::Tensor& v_bhsw,
                    const at::Tensor& dropout_bhss) {
  if (!dropout_bhss.defined()) return at::scaled_dot_product_attention(q_bhsw, k_bhsw, v_bhsw);
  const double scale = 1 / std::sqrt(static_cast<double>(q_bhsw.size(3)));
  const at::Tensor scores_bhss = at::matmul(q_bhsw * scale, k_bhsw.transpose(2, 3));
  return at::matmul(at::softmax(scores_bhss, -1) * dropout_bhss, v_bhsw);
}

}  // namespace tundish::model
