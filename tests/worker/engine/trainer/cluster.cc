#include "tests/worker/engine/trainer/cluster.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include "runtime/base/check.h"
#include "worker/engine/device/process.h"

namespace tundish::testing {
namespace {

namespace fs = std::filesystem;
constexpr int kSide = 16;

void PutLittleEndian(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A 24-bit BMP of `grey` rows, bottom row first.
void WriteBmp(const fs::path& path, const std::array<std::array<uint8_t, kSide>, kSide>& grey) {
  std::string out = "BM";
  PutLittleEndian(out, 54 + kSide * kSide * 3, 4);
  PutLittleEndian(out, 0, 4);
  PutLittleEndian(out, 54, 4);
  PutLittleEndian(out, 40, 4);
  PutLittleEndian(out, kSide, 4);
  PutLittleEndian(out, kSide, 4);
  PutLittleEndian(out, 1, 2);
  PutLittleEndian(out, 24, 2);
  for (int i = 0; i < 6; ++i) PutLittleEndian(out, 0, 4);
  for (int y = kSide - 1; y >= 0; --y) {
    for (int x = 0; x < kSide; ++x) out.append(3, static_cast<char>(grey[y][x]));
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  TUNDISH_CHECK(file != nullptr && std::fwrite(out.data(), 1, out.size(), file) == out.size());
  std::fclose(file);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  path_ = (fs::temp_directory_path() / "tundish-test-XXXXXX").string();
  TUNDISH_CHECK(mkdtemp(path_.data()) != nullptr);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void WriteTinyImages(const std::string& folder, int per_class) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> noise(0, 60);
  for (int label = 0; label < 3; ++label) {
    const fs::path of_class = fs::path(folder) / fmt::format("class{}", label);
    fs::create_directories(of_class);
    for (int i = 0; i < per_class; ++i) {
      std::array<std::array<uint8_t, kSide>, kSide> grey;
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          const bool bright = label == 0 ? x < 8 : label == 1 ? y < 8 : (x / 4 + y / 4) % 2 == 0;
          grey[y][x] = static_cast<uint8_t>((bright ? 150 : 20) + noise(random));
        }
      }
      WriteBmp(of_class / fmt::format("{:03}.bmp", i), grey);
    }
  }
}

v1::JobSpec TinySpec(const std::string& images, int tensor, int data) {
  v1::JobSpec spec;
  spec.set_name("tiny");
  spec.mutable_data()->set_folder(images);
  spec.mutable_data()->set_validation_fraction(0.25);
  spec.mutable_data()->set_bad_files(v1::FAIL);
  spec.mutable_data()->mutable_augment()->set_horizontal_flip(true);
  spec.mutable_data()->add_mean(0.5);
  spec.mutable_data()->add_std(0.5);
  spec.mutable_data()->set_cache_bytes(1 << 20);
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_image_size(kSide);
  model.set_patch_size(8);
  model.set_hidden(32);
  model.set_depth(2);
  model.set_heads(4);
  model.set_mlp_hidden(64);
  model.set_channels(1);
  model.set_pooling(v1::CLASS_TOKEN);
  model.set_drop_path_rate(0.2F);
  model.set_layer_norm_eps(1e-6);
  spec.mutable_parallel()->set_tensor(tensor);
  spec.mutable_parallel()->set_data(data);
  spec.mutable_parallel()->set_device("cpu");
  spec.mutable_parallel()->set_threads_per_rank(1);
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(20);
  training.set_global_batch(7);  // Replicas of 3 and 4.
  training.set_micro_batch(2);
  training.set_seed(11);
  training.set_precision(v1::FP32);
  training.set_class_weights(v1::INVERSE);
  training.set_label_smoothing(0.1F);
  training.set_ema_decay(0.9);
  training.mutable_optimizer()->set_layer_decay(0.8);
  v1::OptimizerSpec& optimizer = *training.mutable_optimizer();
  optimizer.set_learning_rate(2e-3);
  optimizer.set_weight_decay(0.05);
  optimizer.set_beta1(0.9);
  optimizer.set_beta2(0.999);
  // The key bias has no gradient but rounding noise, which Adam would blow up to full updates; an
  // eps well above the noise keeps arrangements comparable.
  optimizer.set_eps(1e-5);
  optimizer.set_clip_norm(1.0);
  training.mutable_schedule()->set_kind(v1::COSINE);
  training.mutable_schedule()->set_warmup_steps(3);
  spec.mutable_evaluation()->set_every_epochs(2);
  spec.mutable_checkpoints()->set_every_steps(10);
  spec.mutable_checkpoints()->set_keep_last(2);
  return spec;
}

void Recorder::OnFormed(const v1::Formed& formed) {
  formed_at.push_back(formed.step());
}
void Recorder::OnStepDone(const v1::StepDone& step) {
  steps.push_back(step);
}
void Recorder::OnEvaluation(const v1::Evaluation& evaluation) {
  evaluations.push_back(evaluation);
}
void Recorder::OnCheckpoint(uint32_t /*job_epoch*/, const v1::CheckpointWritten& checkpoint) {
  checkpoints.push_back(checkpoint);
}
void Recorder::OnFinished(const v1::Finished& done) {
  finished.push_back(done);
}
void Recorder::OnNotice(const v1::RankNotice& notice) {
  notices.push_back(notice);
}
void Recorder::OnEvaluationProgress(uint32_t /*step*/, uint32_t /*batches*/) {
  ++evaluation_batches;
}
void Recorder::OnPoint(trainer::StepPoint point, uint32_t step) {
  if (at_point) at_point(point, step);
}

Cluster::Cluster(v1::JobSpec spec, std::string artifact_root)
    : spec_(std::move(spec)),
      artifact_root_(std::move(artifact_root)),
      tensor_(spec_.parallel().tensor()),
      data_(spec_.parallel().data()) {
  device::PrepareProcess();
  const auto dataset = data::Dataset::Scan(spec_.data());
  TUNDISH_CHECK(dataset.ok());
  for (const std::string& name : dataset->classes()) report_.add_classes(name);
  report_.set_train_images(static_cast<uint32_t>(dataset->train().size()));
  report_.set_validation_images(static_cast<uint32_t>(dataset->validation().size()));
  report_.set_manifest_hash(dataset->ManifestHash());
  for (int dp = 0; dp < data_; ++dp) {
    for (int tp = 0; tp < tensor_; ++tp) {
      auto& rank = *ranks_.emplace_back(std::make_unique<Rank>());
      rank.dp = dp;
      rank.tp = tp;
      Replace(rank);
    }
  }
}

void Cluster::Replace(Rank& rank) {
  rank.trainer.reset();
  rank.recorder = std::make_unique<Recorder>();
  rank.trainer = std::make_unique<trainer::Trainer>(*rank.recorder);
  rank.start.Clear();
  rank.start.mutable_fresh();
  rank.killed = false;
}

v1::Assignment Cluster::Assign(const Rank& rank) const {
  v1::Assignment assignment;
  assignment.set_dp(rank.dp);
  assignment.set_tp(rank.tp);
  for (const auto& other : ranks_) {
    v1::Member& member = *assignment.add_members();
    member.set_dp(other->dp);
    member.set_tp(other->tp);
    member.set_data_address("127.0.0.1");
    member.add_devices(fmt::format("cpu:{}", other->dp * tensor_ + other->tp));
  }
  *assignment.mutable_spec() = spec_;
  *assignment.mutable_data() = report_;
  assignment.set_total_steps(spec_.training().steps());
  assignment.set_artifact_root(artifact_root_);
  assignment.set_job_folder("job");
  *assignment.mutable_start() = rank.start;
  assignment.set_collective_timeout_seconds(8);
  return assignment;
}

void Cluster::Run(uint32_t job_epoch) {
  {
    const std::lock_guard lock(mutex_);
    death_ = false;
  }
  const auto table = std::make_shared<SharedTable>();
  for (const auto& rank : ranks_) {
    rank->arrangement =
        std::make_shared<trainer::Arrangement>(job_epoch, c10::make_intrusive<MemoryStore>(table));
  }
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) {
    threads.emplace_back([this, &rank = *rank] { RunOne(rank, Assign(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : ranks_) {
    if (!rank->killed) rank->trainer->Quiesce(*rank->arrangement);
    rank->arrangement.reset();
  }
}

void Cluster::RunOne(Rank& rank, const v1::Assignment& assignment) {
  at::set_num_threads(1);
  rank.error.clear();
  try {
    rank.trainer->Run(assignment, *rank.arrangement);
    return;
  } catch (const Killed&) {
    rank.killed = true;
    rank.error = "killed";
  } catch (const std::exception& error) {
    rank.error = error.what();
  }
  rank.trainer->Quiesce(*rank.arrangement);
  AbortAll();
  if (rank.killed) {
    rank.trainer.reset();
  } else {
    rank.standing = rank.trainer->Standing();
  }
}

void Cluster::AbortAll() {
  {
    const std::lock_guard lock(mutex_);
    death_ = true;
  }
  died_.notify_all();
  for (const auto& rank : ranks_) rank->arrangement->Abort();
}

void Cluster::HoldUntilDeath() {
  std::unique_lock lock(mutex_);
  died_.wait(lock, [this] { return death_; });
  throw std::runtime_error("a peer died");
}

std::vector<float> Cluster::State(const Rank& rank) {
  const at::Tensor state = rank.trainer->shard()->model.arena().state();
  const auto* values = state.const_data_ptr<float>();
  return {values, values + state.numel()};
}

}  // namespace tundish::testing
