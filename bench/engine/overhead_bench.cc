// How much of a ViT-T step the engine spends outside LibTorch's operators: step bookkeeping,
// reports, module names, clocks, and whatever autograd needs between operators. An upper bound for
// what is ours, measured inside the same steps. Also what the checks between steps cost, spread
// over the steps they cover. Prints one JSON line.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include "runtime/base/check.h"
#include "tests/worker/engine/trainer/cluster.h"
#include "worker/engine/device/cpu_backend.h"
#include "worker/engine/observe/operator_watch.h"
#include "worker/engine/trainer/replica_check.h"
#include "worker/engine/trainer/step.h"

namespace tundish {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kWarmUp = 2;
constexpr uint32_t kSteps = 24;
constexpr uint32_t kBatch = 16;

// Time inside operators that no other operator called.
class OperatorClock final : public observe::OperatorWatch {
 public:
  void Before(const observe::OperatorCall&) override {
    if (depth_++ == 0) start_ = Clock::now();
  }
  void After(const observe::OperatorCall&) override {
    if (--depth_ == 0) inside_ += Clock::now() - start_;
  }
  double TakeSeconds() {
    const double seconds = std::chrono::duration<double>(inside_).count();
    inside_ = {};
    return seconds;
  }

 private:
  int depth_ = 0;
  Clock::time_point start_;
  Clock::duration inside_{};
};

class LastStep final : public trainer::TrainerEvents {
 public:
  void OnFormed(const v1::Formed&) override {}
  void OnStepDone(const v1::StepDone& step) override { done = step; }
  void OnEvaluation(const v1::Evaluation&) override {}
  void OnCheckpoint(uint32_t, const v1::CheckpointWritten&) override {}
  void OnFinished(const v1::Finished&) override {}
  v1::StepDone done;
};

trainer::TrainingPlan VitTiny(uint32_t images) {
  trainer::TrainingPlan plan;
  plan.shape = {.image_size = 224,
                .patch_size = 16,
                .channels = 1,
                .hidden = 192,
                .depth = 12,
                .heads = 3,
                .mlp_hidden = 768,
                .classes = 3};
  plan.clip_norm = 1;
  plan.global_batch = plan.micro_batch = kBatch;
  plan.total_steps = kWarmUp + kSteps;
  plan.train_images = images;
  return plan;
}

std::array<double, 3> Quartiles(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return {values[n / 4], values[n / 2], values[n * 3 / 4]};
}

int Main() {
  at::set_num_threads(2);
  const testing::TemporaryFolder folder;
  testing::WriteTinyImages(folder.path(), 30);
  v1::DataSpec source;
  source.set_folder(folder.path());
  const auto dataset = data::Dataset::Scan(source);
  TUNDISH_CHECK(dataset.ok());
  const trainer::TrainingPlan plan = VitTiny(static_cast<uint32_t>(dataset->train().size()));
  const trainer::Place place;
  device::CpuBackend backend;
  trainer::Shard shard(plan, place, backend.device());
  shard.model.InitializeFromSeed(1);
  shard.has_state = true;
  trainer::Arrangement arrangement(
      1, c10::make_intrusive<testing::MemoryStore>(std::make_shared<testing::SharedTable>()));
  LastStep events;
  trainer::StepRunner runner(plan, place, shard, arrangement, backend, events);
  data::LoaderOptions options;
  options.transform.image_size = 224;
  options.transform.channels = 1;
  options.global_batch = kBatch;
  data::BatchLoader loader(*dataset, data::Split::kTrain, options);
  loader.StartTraining(0, plan.total_steps, 0, 1);

  for (uint32_t i = 0; i < kWarmUp; ++i) runner.Run(loader);
  std::vector<double> outside_percent;
  std::vector<double> step_seconds;
  OperatorClock clock;
  for (uint32_t i = 0; i < kSteps; ++i) {
    const auto start = Clock::now();
    {
      const observe::WatchScope watched({&clock});
      runner.Run(loader);
    }
    const double waited = events.done.time().data_wait_seconds();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() - waited;
    outside_percent.push_back(100 * (seconds - clock.TakeSeconds()) / seconds);
    step_seconds.push_back(seconds);
  }
  const auto [step_low, step, step_high] = Quartiles(step_seconds);

  data::Batch batch{.step = 0};
  const data::SampleOrder order(plan.seed, plan.train_images);
  for (uint64_t p = 0; p < kBatch; ++p) {
    batch.positions.push_back(p);
    batch.samples.push_back(order.IndexAt(p));
  }
  std::vector<double> check_percent;
  for (int i = 0; i < 11; ++i) {
    const auto start = Clock::now();
    trainer::CheckReplicas(plan, place, shard, arrangement, backend, batch);
    // Every hundredth step by default.
    check_percent.push_back(std::chrono::duration<double>(Clock::now() - start).count() / step);
  }
  const auto outside = Quartiles(outside_percent);
  const auto check = Quartiles(check_percent);
  fmt::print(
      "{{\"model\":\"vit_tiny_patch16_224\",\"batch\":{},\"threads\":2,\"steps\":{},"
      "\"step_seconds\":[{:.3f},{:.3f},{:.3f}],\"outside_operators_percent\":[{:.3f},{:.3f},"
      "{:.3f}],\"replica_check_percent\":[{:.4f},{:.4f},{:.4f}]}}\n",
      kBatch, kSteps, step_low, step, step_high, outside[0], outside[1], outside[2], check[0],
      check[1], check[2]);
  return 0;
}

}  // namespace
}  // namespace tundish

int main() {
  return tundish::Main();
}
