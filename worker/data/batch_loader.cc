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
#include "worker/data/image_cache.h"
#include "worker/data/load_image.h"

namespace tundish::data {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(50);

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
        cache_(static_cast<uint32_t>(samples_.size()), options_.cache_bytes) {
    TUNDISH_CHECK(options_.threads >= 1 && options_.look_ahead >= 1);
    TUNDISH_CHECK(options_.global_batch >= 1);
    TUNDISH_CHECK(options_.transform.channels == 1 || options_.transform.channels == 3);
    TUNDISH_CHECK(options_.class_weights.empty() ||
                  options_.class_weights.size() == dataset.classes().size());
    if (!samples_.empty()) {
      order_.emplace(options_.seed, static_cast<uint32_t>(samples_.size()));
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
    batch_ready_.wait(lock, [&] {
      return stopping_ || !failure_.ok() || (slots_.empty() && plan_.next == plan_.end) ||
             (!slots_.empty() && slots_.front()->complete());
    });
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

  uint64_t cached_bytes() const { return cache_.bytes(); }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      Slot* slot = nullptr;
      work_.wait(lock, [&] { return stopping_ || (slot = SlotWithWork()) != nullptr; });
      if (stopping_) return;
      const uint32_t item = slot->taken++;
      lock.unlock();
      absl::Status filled = Fill(slot->batch, item);
      lock.lock();
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
    while (plan_.next < plan_.end && slots_.size() < static_cast<size_t>(options_.look_ahead)) {
      slots_.push_back(std::make_unique<Slot>());
      Slot& slot = *slots_.back();
      slot.batch = plan_.training ? TrainingBatch(plan_.next) : EvaluationBatch(plan_.next);
      ++plan_.next;
      if (slot.batch.size() > 0) return &slot;
      batch_ready_.notify_all();  // Empty, so complete.
    }
    return nullptr;
  }

  float WeightOf(const Sample& sample) const {
    return options_.class_weights.empty() ? sample.weight
                                          : sample.weight * options_.class_weights[sample.label];
  }

  void Append(Batch& batch, uint64_t position, uint32_t sample, float weight) const {
    batch.positions.push_back(position);
    batch.samples.push_back(sample);
    batch.labels.push_back(samples_[sample].label);
    batch.weights.push_back(weight);
  }

  Batch TrainingBatch(uint32_t step) const {
    const uint32_t global_batch = options_.global_batch;
    const PositionRange slice = RowSlice(step, global_batch, plan_.dp, plan_.degree);
    const uint64_t first = uint64_t{step} * global_batch;
    Batch batch = {.step = step, .data_epoch = order_->DataEpochOf(first)};
    for (uint64_t position = first; position < first + global_batch; ++position) {
      const uint32_t sample = order_->IndexAt(position);
      const float weight = WeightOf(samples_[sample]);
      batch.global_weight_sum += weight;
      if (position >= slice.first && position < slice.first + slice.count) {
        Append(batch, position, sample, weight);
      }
    }
    batch.pixels.resize(batch.size() * pixels_per_image());
    return batch;
  }

  Batch EvaluationBatch(uint32_t number) const {
    const uint64_t part_end = PartStart(samples_.size(), plan_.dp + 1, plan_.degree);
    const uint64_t first =
        PartStart(samples_.size(), plan_.dp, plan_.degree) + uint64_t{number} * plan_.batch_size;
    const uint64_t end = std::min(first + plan_.batch_size, part_end);
    Batch batch = {.step = number};
    for (uint64_t i = first; i < end; ++i) Append(batch, i, static_cast<uint32_t>(i), 1.0F);
    batch.global_weight_sum = static_cast<double>(batch.size());
    batch.pixels.resize(batch.size() * pixels_per_image());
    return batch;
  }

  size_t pixels_per_image() const {
    const auto side = static_cast<size_t>(options_.transform.image_size);
    return side * side * static_cast<size_t>(options_.transform.channels);
  }

  absl::Status Fill(Batch& batch, uint32_t item) {
    const uint32_t sample = batch.samples[item];
    const absl::StatusOr<std::shared_ptr<const Image>> image = Prepared(sample);
    if (!image.ok()) return image.status();
    float* out = batch.pixels.data() + item * pixels_per_image();
    if (plan_.training) {
      TrainingPixels(**image, options_.transform, options_.seed, batch.positions[item], out);
    } else {
      EvaluationPixels(**image, options_.transform, out);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Image>> Prepared(uint32_t index) {
    if (auto cached = cache_.Find(index)) return cached;
    const Sample& sample = samples_[index];
    const absl::StatusOr<std::string> bytes =
        ReadFilePatiently(sample.file, [this] { return WaitUnlessStopped(); });
    if (!bytes.ok()) {
      return absl::Status(
          bytes.status().code(),
          fmt::format("image '{}': {}", sample.name, std::string(bytes.status().message())));
    }
    const absl::StatusOr<Image> decoded = DecodeForModel(*bytes, options_.transform);
    if (!decoded.ok()) {
      return absl::DataLossError(
          fmt::format("image '{}' could be read when the data was checked and cannot now: {}",
                      sample.name, std::string(decoded.status().message())));
    }
    auto prepared = std::make_shared<const Image>(Prepare(*decoded, options_.transform));
    cache_.Offer(index, prepared);
    return prepared;
  }

  bool WaitUnlessStopped() {
    std::unique_lock lock(mutex_);
    return !batch_ready_.wait_for(lock, kRetryAfter, [this] { return stopping_; });
  }

  const std::vector<Sample>& samples_;  // The dataset's, which outlives the loader.
  const LoaderOptions options_;
  std::optional<SampleOrder> order_;
  ImageCache cache_;

  std::mutex mutex_;
  std::condition_variable work_;         // A slot has items, or there is room for a slot.
  std::condition_variable batch_ready_;  // A batch is complete.
  Plan plan_;  // `next` guarded by mutex_; the rest fixed while threads run.
  std::deque<std::unique_ptr<Slot>> slots_;
  absl::Status failure_;
  bool stopping_ = true;

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

uint64_t BatchLoader::cached_bytes() const {
  return impl_->cached_bytes();
}

LoaderOptions MakeLoaderOptions(const v1::JobSpec& spec, const Dataset& dataset, Split split) {
  LoaderOptions options;
  options.transform.image_size = spec.model().image_size();
  options.transform.channels = spec.model().channels();
  options.transform.mean.assign(spec.data().mean().begin(), spec.data().mean().end());
  options.transform.std_dev.assign(spec.data().std().begin(), spec.data().std().end());
  options.seed = spec.training().seed();
  options.global_batch = spec.training().global_batch();
  if (split == Split::kTrain) {
    options.transform.augment = spec.data().augment();
    options.class_weights = dataset.ClassWeights(spec.training().class_weights());
  }
  // A rank's cache is shared out between its two loaders by their images.
  const uint64_t cache_bytes =
      spec.data().has_cache_bytes() ? spec.data().cache_bytes() : uint64_t{256} << 20;
  const double share = static_cast<double>(dataset.samples(split).size()) /
                       static_cast<double>(dataset.train().size() + dataset.validation().size());
  options.cache_bytes = static_cast<uint64_t>(static_cast<double>(cache_bytes) * share);
  return options;
}

}  // namespace tundish::data
