#include "worker/data/batch_loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "runtime/base/check.h"
#include "worker/data/look_ahead.h"

namespace tundish::data {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(50);
constexpr uint64_t kLookAheadBytes = uint64_t{256} << 20;
constexpr uint64_t kMostLookAhead = 16;

/// What a Start call asks for.
struct Plan {
  bool training = true;
  /// Batches [next, end) are still to be begun.
  uint32_t next = 0;
  uint32_t end = 0;
  uint32_t dp = 0;
  uint32_t degree = 1;
  uint32_t batch_size = 1;
};

/// A batch in the making. Fields other than pixels are guarded by the loader's mutex; each thread
/// writes the pixels of the items it took.
struct Slot {
  Batch batch;
  uint32_t taken = 0;
  uint32_t done = 0;
  /// The failure of the item with the lowest index, so that the report does not depend on timing.
  std::optional<std::pair<uint32_t, absl::Status>> failure;

  bool complete() const { return done == batch.size(); }
};

uint64_t PartStart(uint64_t count, uint32_t part, uint32_t parts) {
  return count * part / parts;
}

}  // namespace

class BatchLoader::Impl {
 public:
  Impl(const Dataset& dataset, Split split, LoaderOptions options)
      : samples_(dataset.samples(split)),
        options_(std::move(options)),
        pipeline_(samples_, options_.transform, options_.cache_bytes,
                  [this] { return WaitUnlessStopped(); }),
        pool_(options_.allocate),
        look_ahead_(options_.look_ahead, std::max(options_.look_ahead, options_.most_look_ahead)) {
    TUNDISH_CHECK(options_.threads >= 1 && options_.look_ahead >= 1);
    TUNDISH_CHECK(options_.global_batch >= 1);
    TUNDISH_CHECK(options_.transform.channels == 1 || options_.transform.channels == 3);
    TUNDISH_CHECK(options_.class_weights.empty() ||
                  options_.class_weights.size() == dataset.classes().size());
    if (!samples_.empty()) {
      order_.emplace(options_.seed, static_cast<uint32_t>(samples_.size()),
                     std::exchange(options_.sampling_weights, {}), options_.repeats);
    }
  }

  void Start(const Plan& plan) {
    Stop();
    const std::scoped_lock lock(join_mutex_, mutex_);
    plan_ = plan;
    slots_.clear();
    failure_ = absl::OkStatus();
    stopping_ = false;
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  void StartEvaluation(uint32_t batch_size, uint32_t dp, uint32_t degree) {
    TUNDISH_CHECK(batch_size >= 1 && dp < degree);
    const uint64_t images =
        PartStart(samples_.size(), dp + 1, degree) - PartStart(samples_.size(), dp, degree);
    Start({.training = false,
           .end = static_cast<uint32_t>((images + batch_size - 1) / batch_size),
           .dp = dp,
           .degree = degree,
           .batch_size = batch_size});
  }

  absl::StatusOr<Batch> Next() {
    std::unique_lock lock(mutex_);
    look_ahead_.OnNext(static_cast<int>(std::ranges::count_if(
                           slots_, [](const auto& slot) { return slot->complete(); })),
                       std::exchange(threads_idled_, false));
    const auto asked = std::chrono::steady_clock::now();
    work_.notify_all();  // There may be room for more batches now.
    batch_ready_.wait(lock, [&] {
      return stopping_ || !failure_.ok() || (slots_.empty() && plan_.next == plan_.end) ||
             (!slots_.empty() && slots_.front()->complete());
    });
    stats_.waited += std::chrono::steady_clock::now() - asked;
    ++stats_.batches;
    if (stopping_) return absl::CancelledError("the loader is stopped");
    if (!failure_.ok()) return failure_;
    if (slots_.empty()) return absl::OutOfRangeError("no more batches");
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    work_.notify_all();
    if (slot->failure) {
      failure_ = slot->failure->second;
      return failure_;
    }
    return std::move(slot->batch);
  }

  void Wake() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_.notify_all();
    batch_ready_.notify_all();
  }

  void Stop() {
    Wake();
    const std::lock_guard joining(join_mutex_);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  uint64_t cached_bytes() const { return pipeline_.cached_bytes(); }

  LoaderStats stats() const {
    const std::lock_guard lock(mutex_);
    LoaderStats stats = stats_;
    stats.threads = options_.threads;
    stats.look_ahead = look_ahead_.batches();
    return stats;
  }

 private:
  void Work() {
    ImagePipeline::Workspace workspace;
    std::unique_lock lock(mutex_);
    while (true) {
      Slot* slot = nullptr;
      work_.wait(lock, [&] { return stopping_ || (slot = SlotWithWork()) != nullptr; });
      if (stopping_) return;
      const uint32_t item = slot->taken++;
      lock.unlock();
      StageTimes times;
      absl::Status filled = Fill(slot->batch, item, workspace, times);
      lock.lock();
      stats_.stages.Add(times);
      if (stopping_) return;  // Start clears the slots only after this thread has ended.
      if (!filled.ok() && (!slot->failure || item < slot->failure->first)) {
        slot->failure = {item, std::move(filled)};
      }
      ++slot->done;
      if (slot->complete()) batch_ready_.notify_all();
    }
  }

  /// The oldest batch with an item nobody has taken, begun now if need be; null when the look-ahead
  /// is used up or there is nothing left. Holds the mutex.
  Slot* SlotWithWork() {
    for (const auto& slot : slots_) {
      if (slot->taken < slot->batch.size()) return slot.get();
    }
    const auto most = static_cast<size_t>(look_ahead_.batches());
    while (plan_.next < plan_.end && slots_.size() < most) {
      slots_.push_back(std::make_unique<Slot>());
      Slot& slot = *slots_.back();
      slot.batch = plan_.training ? TrainingBatch(plan_.next) : EvaluationBatch(plan_.next);
      ++plan_.next;
      if (slot.batch.size() > 0) return &slot;
      batch_ready_.notify_all();  // Empty, so complete.
    }
    if (plan_.next < plan_.end) threads_idled_ = true;
    return nullptr;
  }

  float WeightOf(const Sample& sample) const {
    const float weight = options_.loss_uses_sample_weights ? sample.weight : 1.0F;
    return options_.class_weights.empty() ? weight : weight * options_.class_weights[sample.label];
  }

  void Append(Batch& batch, uint64_t position, uint32_t sample, float weight) const {
    batch.positions.push_back(position);
    batch.samples.push_back(sample);
    batch.labels.push_back(samples_[sample].label);
    batch.weights.push_back(weight);
  }

  Batch TrainingBatch(uint32_t step) {
    const uint32_t global_batch = options_.global_batch;
    const PositionRange slice = RowSlice(step, global_batch, plan_.dp, plan_.degree);
    const uint64_t first = uint64_t{step} * global_batch;
    Batch batch = {.step = step, .data_epoch = order_->DataEpochOf(first)};
    for (uint64_t position = first; position < first + global_batch; ++position) {
      const uint32_t sample = order_->IndexAt(position);
      const bool own = position >= slice.first && position < slice.first + slice.count;
      float weight = WeightOf(samples_[sample]);
      if (options_.mix.active()) {
        const Mix mix = MixOf(position);
        const Sample& partner = samples_[order_->IndexAt(mix.partner)];
        const float partner_weight = (1 - mix.share) * WeightOf(partner);
        weight *= mix.share;
        batch.global_weight_sum += partner_weight;
        if (own) {
          batch.partner_labels.push_back(partner.label);
          batch.partner_weights.push_back(partner_weight);
        }
      }
      batch.global_weight_sum += weight;
      if (own) Append(batch, position, sample, weight);
    }
    batch.pixels = pool_.Take(batch.size() * pixels_per_image());
    return batch;
  }

  Batch EvaluationBatch(uint32_t number) {
    const uint64_t part_end = PartStart(samples_.size(), plan_.dp + 1, plan_.degree);
    const uint64_t first =
        PartStart(samples_.size(), plan_.dp, plan_.degree) + uint64_t{number} * plan_.batch_size;
    const uint64_t end = std::min(first + plan_.batch_size, part_end);
    Batch batch = {.step = number};
    for (uint64_t i = first; i < end; ++i) Append(batch, i, static_cast<uint32_t>(i), 1.0F);
    batch.global_weight_sum = static_cast<double>(batch.size());
    batch.pixels = pool_.Take(batch.size() * pixels_per_image());
    return batch;
  }

  size_t pixels_per_image() const {
    const auto side = static_cast<size_t>(options_.transform.image_size);
    return side * side * static_cast<size_t>(options_.transform.channels);
  }

  absl::Status Fill(Batch& batch, uint32_t item, ImagePipeline::Workspace& workspace,
                    StageTimes& times) {
    float* out = batch.pixels.data() + item * pixels_per_image();
    const uint32_t sample = batch.samples[item];
    if (!plan_.training) return pipeline_.Evaluation(sample, workspace, times, out);
    const uint64_t position = batch.positions[item];
    const absl::Status own =
        pipeline_.Training(sample, options_.seed, position, workspace, times, out);
    return own.ok() && options_.mix.active() ? MixInto(position, workspace, times, out) : own;
  }

  Mix MixOf(uint64_t position) const {
    return MixAt(options_.mix, options_.seed, position, options_.global_batch,
                 options_.transform.image_size);
  }

  /// The partner is prepared here as well as on its own replica: mixing needs no communication.
  absl::Status MixInto(uint64_t position, ImagePipeline::Workspace& workspace, StageTimes& times,
                       float* out) {
    const Mix mix = MixOf(position);
    if (mix.partner == position) return absl::OkStatus();
    std::vector<float> partner(pixels_per_image());
    const absl::Status prepared =
        pipeline_.Training(order_->IndexAt(mix.partner), options_.seed, mix.partner, workspace,
                           times, partner.data());
    if (!prepared.ok()) return prepared;
    MixPixels(mix, partner.data(), options_.transform.channels, options_.transform.image_size, out);
    return absl::OkStatus();
  }

  bool WaitUnlessStopped() {
    std::unique_lock lock(mutex_);
    return !batch_ready_.wait_for(lock, kRetryAfter, [this] { return stopping_; });
  }

  const std::vector<Sample>& samples_;  // The dataset's, which outlives the loader.
  LoaderOptions options_;               // Fixed once the constructor is done.
  std::optional<SampleOrder> order_;
  ImagePipeline pipeline_;
  PixelPool pool_;

  mutable std::mutex mutex_;
  std::condition_variable work_;         // A slot has items, or there is room for a slot.
  std::condition_variable batch_ready_;  // A batch is complete.
  Plan plan_;  // `next` guarded by mutex_; the rest fixed while threads run.
  std::deque<std::unique_ptr<Slot>> slots_;
  absl::Status failure_;
  bool stopping_ = true;
  LookAhead look_ahead_;
  /// A thread found nothing to do since the last Next, though batches are left.
  bool threads_idled_ = false;
  LoaderStats stats_;

  std::mutex join_mutex_;  // Two Stops may meet.
  std::vector<std::thread> threads_;
};

BatchLoader::BatchLoader(const Dataset& dataset, Split split, LoaderOptions options)
    : impl_(std::make_unique<Impl>(dataset, split, std::move(options))) {}

BatchLoader::~BatchLoader() {
  impl_->Stop();
}

void BatchLoader::StartTraining(uint32_t first_step, uint32_t last_step, uint32_t dp,
                                uint32_t degree) {
  TUNDISH_CHECK(first_step <= last_step && dp < degree);
  impl_->Start(
      {.training = true, .next = first_step, .end = last_step, .dp = dp, .degree = degree});
}

void BatchLoader::StartEvaluation(uint32_t batch_size, uint32_t dp, uint32_t degree) {
  impl_->StartEvaluation(batch_size, dp, degree);
}

absl::StatusOr<Batch> BatchLoader::Next() {
  return impl_->Next();
}

void BatchLoader::Stop() {
  impl_->Stop();
}

void BatchLoader::Interrupt() {
  impl_->Wake();
}

uint64_t BatchLoader::cached_bytes() const {
  return impl_->cached_bytes();
}

LoaderStats BatchLoader::stats() const {
  return impl_->stats();
}

LoaderOptions MakeLoaderOptions(const v1::JobSpec& spec, const Dataset& dataset, Split split) {
  LoaderOptions options;
  options.transform.image_size = spec.model().image_size();
  options.transform.channels = spec.model().channels();
  options.transform.mean.assign(spec.data().mean().begin(), spec.data().mean().end());
  options.transform.std_dev.assign(spec.data().std().begin(), spec.data().std().end());
  if (spec.data().interpolation() == v1::BICUBIC) options.transform.filter = Filter::kBicubic;
  if (spec.data().has_crop_fraction()) {
    options.transform.crop_fraction = spec.data().crop_fraction();
  }
  options.seed = spec.training().seed();
  options.global_batch = spec.training().global_batch();
  if (split == Split::kTrain) {
    options.transform.augment = spec.data().augment();
    options.mix = {.mixup_alpha = spec.training().mixup_alpha(),
                   .cutmix_alpha = spec.training().cutmix_alpha()};
    options.class_weights = dataset.ClassWeights(spec.training().class_weights());
    options.sampling_weights = dataset.SamplingWeights(spec.data().sampling());
    options.loss_uses_sample_weights = spec.data().sampling() != v1::WEIGHTED;
    options.repeats = std::max(1U, spec.data().repeats());
  }
  // A rank's cache is shared out between its two loaders by their images.
  const uint64_t cache_bytes =
      spec.data().has_cache_bytes() ? spec.data().cache_bytes() : uint64_t{256} << 20;
  const double share = static_cast<double>(dataset.samples(split).size()) /
                       static_cast<double>(dataset.train().size() + dataset.validation().size());
  options.cache_bytes = static_cast<uint64_t>(static_cast<double>(cache_bytes) * share);
  const uint64_t batch_bytes = uint64_t{options.global_batch} * options.transform.channels *
                               options.transform.image_size * options.transform.image_size *
                               sizeof(float);
  options.most_look_ahead = static_cast<int>(
      std::clamp<uint64_t>(kLookAheadBytes / std::max<uint64_t>(1, batch_bytes),
                           static_cast<uint64_t>(options.look_ahead), kMostLookAhead));
  return options;
}

}  // namespace tundish::data
