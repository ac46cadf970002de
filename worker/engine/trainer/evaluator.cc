#include "worker/engine/trainer/evaluator.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "worker/engine/trainer/autocast.h"
#include "worker/engine/trainer/fatal_error.h"

namespace tundish::trainer {
namespace {

// The model computes with its averaged weights for as long as it lives, also when a peer is lost.
class AverageScope {
 public:
  AverageScope(model::Vit& vit, bool use) : vit_(vit) { vit_.UseAverage(use); }
  ~AverageScope() { vit_.UseAverage(false); }
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;

 private:
  model::Vit& vit_;  // The shard's, which outlives the evaluation.
};

// Adds one batch to [confusion C x C | loss sum].
void Count(const TrainingPlan& plan, const data::Batch& batch, Shard& shard,
           device::Backend& backend, at::Tensor& counts) {
  const model::VitShape& shape = plan.shape;
  const int64_t b = batch.size();
  const at::Tensor pixels_bchw =
      at::from_blob(const_cast<float*>(batch.pixels.data()),
                    {b, shape.channels, shape.image_size, shape.image_size})
          .to(backend.device());
  const at::Tensor labels_b =
      at::from_blob(const_cast<int64_t*>(batch.labels.data()), {b}, at::kLong);
  at::Tensor logits_bc;
  {
    const AutocastScope autocast(backend.device().type(), plan.bf16);
    logits_bc = shard.model.Forward(pixels_bchw, std::nullopt);
  }
  logits_bc = logits_bc.to(at::kFloat).cpu();
  const at::Tensor loss_b = at::cross_entropy_loss(logits_bc, labels_b, /*weight=*/{},
                                                   /*reduction=*/at::Reduction::None);
  const at::Tensor predicted_b = logits_bc.argmax(1).contiguous();
  auto* slots = counts.mutable_data_ptr<double>();
  const int64_t classes = shape.classes;
  for (int64_t i = 0; i < b; ++i) {
    slots[batch.labels[i] * classes + predicted_b.const_data_ptr<int64_t>()[i]] += 1;
    slots[classes * classes] += loss_b.const_data_ptr<float>()[i];
  }
}

}  // namespace

v1::Evaluation Summarize(const std::vector<std::string>& classes,
                         const std::vector<double>& confusion, double loss_sum) {
  const size_t n = classes.size();
  v1::Evaluation evaluation;
  double images = 0;
  double correct = 0;
  double recall_sum = 0;
  int classes_seen = 0;
  for (size_t c = 0; c < n; ++c) {
    double of_class = 0;
    double called_class = 0;
    for (size_t other = 0; other < n; ++other) {
      of_class += confusion[c * n + other];
      called_class += confusion[other * n + c];
      evaluation.add_confusion(static_cast<uint32_t>(confusion[c * n + other]));
    }
    const double right = confusion[c * n + c];
    v1::ClassResult& result = *evaluation.add_classes();
    result.set_name(classes[c]);
    result.set_images(static_cast<uint32_t>(of_class));
    result.set_recall(of_class > 0 ? right / of_class : 0);
    result.set_precision(called_class > 0 ? right / called_class : 0);
    images += of_class;
    correct += right;
    if (of_class > 0) {
      recall_sum += result.recall();
      ++classes_seen;
    }
  }
  evaluation.set_images(static_cast<uint32_t>(images));
  evaluation.set_loss(images > 0 ? loss_sum / images : 0);
  evaluation.set_accuracy(images > 0 ? correct / images : 0);
  evaluation.set_balanced_accuracy(classes_seen > 0 ? recall_sum / classes_seen : 0);
  return evaluation;
}

v1::Evaluation Evaluate(const TrainingPlan& plan, const Place& place,
                        const std::vector<std::string>& classes, Shard& shard,
                        Arrangement& arrangement, device::Backend& backend,
                        data::BatchLoader& loader, TrainerEvents& events) {
  const c10::AutoGradMode no_grad(false);
  const AverageScope average(shard.model, plan.use_average);
  const int64_t c = plan.shape.classes;
  at::Tensor counts = at::zeros({c * c + 1}, at::kDouble);
  loader.StartEvaluation(plan.micro_batch, static_cast<uint32_t>(place.dp),
                         static_cast<uint32_t>(place.data_degree));
  for (uint32_t batches = 1;; ++batches) {
    arrangement.ThrowIfAborted();
    absl::StatusOr<data::Batch> batch = loader.Next();
    if (absl::IsOutOfRange(batch.status())) break;
    if (!batch.ok()) arrangement.ThrowIfAborted();
    if (!batch.ok()) throw FatalError("data_unreadable", std::string(batch.status().message()));
    Count(plan, *batch, shard, backend, counts);
    events.OnEvaluationProgress(shard.step, batches);
  }
  if (arrangement.column()) {
    counts = counts.to(backend.device());
    arrangement.column()->AllReduceSum(counts);
    counts = counts.cpu();
  }
  const auto* slots = counts.const_data_ptr<double>();
  v1::Evaluation evaluation =
      Summarize(classes, std::vector<double>(slots, slots + c * c), slots[c * c]);
  evaluation.set_step(shard.step);
  evaluation.set_data_epoch(plan.DataEpochsAfter(shard.step));
  return evaluation;
}

}  // namespace tundish::trainer
