#pragma once

#include <ATen/core/Tensor.h>

namespace tundish::optimizer {

struct LossOptions {
  /// This share of each label is spread evenly over all classes. [0, 1).
  double label_smoothing = 0;
  /// A class's loss is multiplied by (1 - p)^focal_gamma, p its probability (Lin et al. 2017,
  /// arXiv:1708.02002). >= 0.
  double focal_gamma = 0;
};

/// A batch's labels, int64 [b], and their weights, fp32 [b], on the logits' device. A mixed sample
/// has two of each; `partner_*` are undefined when none is mixed.
struct Targets {
  at::Tensor labels_b, weights_b;
  at::Tensor partner_labels_b, partner_weights_b;
};

/// The weighted sum of the samples' losses, a scalar: sum over samples and their labels of weight x
/// loss(logits, label). `logits_bc` fp32. Gradients flow to the logits only.
at::Tensor WeightedLoss(const at::Tensor& logits_bc, const Targets& targets,
                        const LossOptions& options);

}  // namespace tundish::optimizer
