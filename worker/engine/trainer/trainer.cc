#include "worker/engine/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include "worker/data/decode_threads.h"
#include "worker/engine/checkpoint/model_file.h"
#include "worker/engine/trainer/evaluator.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/merge.h"
#include "worker/engine/trainer/row_group.h"
#include "worker/engine/trainer/state_copy.h"
#include "worker/engine/trainer/warm_up.h"

namespace tundish::trainer {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<double> PerChannel(const google::protobuf::RepeatedField<float>& values,
                               int64_t channels) {
  std::vector<double> result;
  for (int64_t c = 0; c < channels; ++c) {
    const int index = values.size() > 1 ? static_cast<int>(c) : 0;
    result.push_back(index < values.size() ? values.Get(index) : 0.5);
  }
  return result;
}

/// Page-locked, which a GPU copies from without a detour.
std::shared_ptr<float> AllocatePinned(size_t count) {
  const at::Tensor memory =
      at::empty({static_cast<int64_t>(count)}, at::TensorOptions().pinned_memory(true));
  return {memory.mutable_data_ptr<float>(), [memory](float*) {}};
}

int DecodeThreadsFor(const v1::Assignment& assignment, const TrainingPlan& plan,
                     const Place& place) {
  const std::string& node = assignment.members(place.dp * place.tensor_degree + place.tp).node();
  const auto ranks = std::ranges::count_if(
      assignment.members(), [&](const v1::Member& member) { return member.node() == node; });
  const bool computes_here = place.device.starts_with("cpu");
  return data::DecodeThreads(data::UsableCores(), static_cast<int>(ranks),
                             computes_here ? plan.threads : 1);
}

weights::ModelConfig DescribeModel(const TrainingPlan& plan, const v1::Assignment& assignment) {
  const model::VitShape& shape = plan.shape;
  return {.image_size = shape.image_size,
          .patch_size = shape.patch_size,
          .channels = shape.channels,
          .hidden = shape.hidden,
          .depth = shape.depth,
          .heads = shape.heads,
          .mlp_hidden = shape.mlp_hidden,
          .mean_pooling = shape.pooling == model::Pooling::kMean,
          .layer_norm_eps = shape.layer_norm_eps,
          .label_names = {assignment.data().classes().begin(), assignment.data().classes().end()},
          .mean = PerChannel(assignment.spec().data().mean(), shape.channels),
          .std = PerChannel(assignment.spec().data().std(), shape.channels)};
}

/// A device that does not open on this host opens for no replacement either.
std::unique_ptr<device::Backend> Open(const std::string& kind, const std::string& device) {
  try {
    return device::OpenBackend(kind.empty() ? "cpu" : kind, device);
  } catch (const c10::Error& error) {
    throw FatalError("backend_unavailable", error.what_without_backtrace());
  }
}

}  // namespace

Trainer::Trainer(TrainerEvents& events)
    : events_(events), writer_([this](uint32_t job_epoch, const v1::CheckpointWritten& written) {
        ++shards_written_;
        events_.OnCheckpoint(job_epoch, written);
      }) {}

Trainer::~Trainer() = default;

Outcome Trainer::Run(const v1::Assignment& assignment, Arrangement& arrangement) {
  TORCH_CHECK(!runner_, "the trainer was not quiesced");
  const auto start = Clock::now();
  events_.OnPhase(v1::PHASE_FORMING);
  Prepare(assignment);
  if (assignment.start().has_fresh() || assignment.start().has_checkpoint()) Restart(assignment);
  ComeToStart(assignment.start());
  const double local_seconds = SecondsSince(start);

  const auto form_start = Clock::now();
  arrangement.Form(*backend_, place_);
  if (arrangement.row()) {
    shard_->slot.Bind(
        std::make_shared<RowGroup>(arrangement.row(), place_.tp, place_.tensor_degree));
  }
  v1::Formed formed;
  formed.set_form_seconds(SecondsSince(form_start));
  const auto copy_start = Clock::now();
  events_.OnPhase(v1::PHASE_COPYING);
  CopyState(assignment.start(), arrangement);
  runner_ = std::make_unique<StepRunner>(plan_, place_, *shard_, arrangement, *backend_, events_);
  formed.set_restore_seconds(local_seconds + SecondsSince(copy_start));
  formed.set_step(shard_->step);
  events_.OnFormed(formed);
  events_.OnPhase(v1::PHASE_STEP);

  const Outcome outcome = Train(assignment, arrangement);
  if (outcome == Outcome::kFinished) Finish(assignment, arrangement);
  return outcome;
}

bool Trainer::Save(const v1::Save& save, uint32_t job_epoch) {
  TORCH_CHECK(!runner_, "the trainer was not quiesced");
  if (!shard_ || !(save.start().has_keep() || save.start().has_commit())) {
    throw FatalError("wrong_start_point", "this rank holds no state that it could save");
  }
  ComeToStart(save.start());
  writer_.Flush();  // what was due before does not count
  const uint64_t before = shards_written_;
  WriteCheckpoint(save.artifact_root(), save.job_folder(), job_epoch);
  writer_.Flush();
  return shards_written_ > before;
}

void Trainer::Quiesce(Arrangement& arrangement) noexcept {
  arrangement.Abort();
  runner_.reset();
  if (shard_) shard_->slot.Unbind();
  arrangement.Drop();
}

v1::Stopped Trainer::Standing() const {
  v1::Stopped stopped;
  stopped.set_phase(v1::COMPUTING);
  if (!shard_ || !shard_->has_state) return stopped;
  stopped.set_has_state(true);
  stopped.set_step(shard_->step);
  stopped.set_phase(shard_->phase);
  if (shard_->phase == v1::REDUCED) *stopped.mutable_sums() = shard_->sums;
  if (shard_->committed_sums.has_value()) {
    *stopped.mutable_committed_sums() = *shard_->committed_sums;
  }
  return stopped;
}

void Trainer::Prepare(const v1::Assignment& assignment) {
  Place place = MakePlace(assignment);
  if (!shard_) {
    plan_ = MakePlan(assignment);
    place_ = std::move(place);
    at::set_num_threads(plan_.threads);
    backend_ = Open(assignment.spec().parallel().device(), place_.device);
    ListData(assignment.spec(), assignment.data());
    OpenLoaders(assignment);
    shard_ = std::make_unique<Shard>(plan_, place_, backend_->device());
    return;
  }
  // The weights this rank holds are those of its tensor rank, whatever the arrangement.
  if (place.tp != place_.tp || place.tensor_degree != place_.tensor_degree) {
    throw FatalError("wrong_placement",
                     fmt::format("this rank holds slice {} of {}, it cannot become {} of {}",
                                 place_.tp, place_.tensor_degree, place.tp, place.tensor_degree));
  }
  place_ = std::move(place);
}

void Trainer::WarmUp(const v1::JobSpec& spec, const v1::DataReport& data) {
  if (shard_) return;
  at::set_num_threads(spec.parallel().threads_per_rank());
  ListData(spec, data);
  if (spec.parallel().device() == "cpu") WarmUpStep(spec);
}

void Trainer::ListData(const v1::JobSpec& spec, const v1::DataReport& data) {
  std::string key = spec.data().SerializeAsString() + data.SerializeAsString();
  if (dataset_.has_value() && key == data_key_) return;
  std::set<std::string> excluded;
  for (const v1::BadFile& file : data.bad_files()) excluded.insert(file.path());
  absl::StatusOr<data::Dataset> dataset = data::Dataset::Scan(spec.data(), excluded);
  if (!dataset.ok()) {
    throw FatalError("data_unreadable", std::string(dataset.status().message()));
  }
  if (dataset->ManifestHash() != data.manifest_hash()) {
    throw FatalError("data_changed",
                     fmt::format("the data's manifest hash is {}, at the data check it was {}: "
                                 "files were added, removed or renamed since",
                                 dataset->ManifestHash(), data.manifest_hash()));
  }
  dataset_ = *std::move(dataset);
  data_key_ = std::move(key);
}

void Trainer::OpenLoaders(const v1::Assignment& assignment) {
  const auto make = [&](data::Split split) {
    data::LoaderOptions options = data::MakeLoaderOptions(assignment.spec(), *dataset_, split);
    options.threads = DecodeThreadsFor(assignment, plan_, place_);
    if (backend_->device().is_cuda()) options.allocate = AllocatePinned;
    return std::make_unique<data::BatchLoader>(*dataset_, split, std::move(options));
  };
  training_loader_ = make(data::Split::kTrain);
  evaluation_loader_ = make(data::Split::kValidation);
}

/// Everything of the start point that needs no other rank and no file.
void Trainer::ComeToStart(const v1::StartPoint& start) {
  Shard& shard = *shard_;
  if (start.has_receive()) return;  // Comes over the column, once that is formed.
  if (start.has_commit() && shard.has_state && shard.phase == v1::REDUCED &&
      shard.step + 1 == start.step()) {
    CommitForward(start.commit());
  }
  if (!shard.has_state || shard.step != start.step()) {
    throw FatalError(
        "wrong_start_point",
        fmt::format("this rank is at step {} (state: {}, reduced: {}), it cannot "
                    "start at step {} from what it holds",
                    shard.step, shard.has_state, shard.phase == v1::REDUCED, start.step()));
  }
  shard.phase = v1::COMPUTING;
}

/// The last part of a step that an arrangement before this one reduced.
void Trainer::CommitForward(const v1::StepSums& sums) {
  const auto start = Clock::now();
  v1::StepDone done = Commit(plan_, place_, *shard_, sums);
  backend_->Synchronize();
  v1::RankStepTime& time = *done.mutable_time();
  time.set_commit_seconds(SecondsSince(start));
  time.set_step_seconds(time.step_seconds() + time.commit_seconds());
  done.set_memory_bytes(backend_->Memory().used_bytes);
  events_.OnStepDone(done);
}

/// Weights from the seed, a file or a checkpoint.
void Trainer::Restart(const v1::Assignment& assignment) {
  Shard& shard = *shard_;
  shard.has_state = false;
  shard.committed_sums.reset();
  shard.step = 0;
  shard.updates = 0;
  if (assignment.start().has_checkpoint()) {
    const std::string folder =
        (fs::path(assignment.artifact_root()) / assignment.start().checkpoint().path()).string();
    const absl::StatusOr<checkpoint::Counters> counters =
        checkpoint::ReadCheckpoint(folder, place_.tp, place_.tensor_degree, shard.model.arena());
    if (!counters.ok()) {
      throw FatalError("checkpoint_unreadable", std::string(counters.status().message()));
    }
    shard.step = counters->step;
    shard.updates = counters->updates;
  } else if (!plan_.weights_file.empty()) {
    const absl::StatusOr<checkpoint::FullTensors> tensors =
        checkpoint::ReadModelFile(plan_.weights_file);
    if (!tensors.ok()) {
      throw FatalError("weights_invalid", std::string(tensors.status().message()));
    }
    try {
      shard.model.LoadFull(*tensors);
    } catch (const c10::Error& error) {
      throw FatalError("weights_invalid",
                       fmt::format("{}: {}", plan_.weights_file, error.what_without_backtrace()));
    }
  } else {
    shard.model.InitializeFromSeed(plan_.seed);
  }
  shard.has_state = true;
}

void Trainer::CopyState(const v1::StartPoint& start, Arrangement& arrangement) {
  if (start.has_receive()) {
    ReceiveState(*shard_, *arrangement.column(), start.receive().dp());
    TORCH_CHECK(shard_->step == start.step(), "received the state of step ", shard_->step,
                ", expected step ", start.step());
  }
  for (const int dp : start.send_to_dp()) SendState(*shard_, *arrangement.column(), dp);
}

Outcome Trainer::Train(const v1::Assignment& assignment, Arrangement& arrangement) {
  if (shard_->step < plan_.total_steps) {
    training_loader_->StartTraining(shard_->step, plan_.total_steps,
                                    static_cast<uint32_t>(place_.dp),
                                    static_cast<uint32_t>(place_.data_degree));
  }
  // Whoever wrote this step's shards may be gone, and with a commit nobody has: the first replica
  // writes them whole under the new job_epoch, however its ranks came to the step.
  if (!assignment.start().has_checkpoint() && plan_.CheckpointDue(shard_->step)) {
    CheckpointNow(assignment, arrangement.job_epoch());
  }
  while (true) {
    // Also right after a recovery: an evaluation that was cut restarts whole, and whether one is
    // due depends on nothing but the step, so all ranks agree.
    if (plan_.EvaluationDue(shard_->step)) EvaluateNow(arrangement);
    if (shard_->step >= plan_.total_steps) return Outcome::kFinished;
    runner_->Run(*training_loader_);
    if (plan_.CheckpointDue(shard_->step)) CheckpointNow(assignment, arrangement.job_epoch());
    if (runner_->yield_agreed() && shard_->step < plan_.total_steps) return Outcome::kYielded;
  }
}

void Trainer::EvaluateNow(Arrangement& arrangement) {
  if (dataset_->validation().empty()) return;
  events_.OnPhase(v1::PHASE_EVALUATION);
  const v1::Evaluation evaluation = Evaluate(plan_, place_, dataset_->classes(), *shard_,
                                             arrangement, *backend_, *evaluation_loader_);
  if (place_.dp == 0 && place_.tp == 0) events_.OnEvaluation(evaluation);
  events_.OnPhase(v1::PHASE_STEP);
}

void Trainer::CheckpointNow(const v1::Assignment& assignment, uint32_t job_epoch) {
  // All replicas hold the same weights; the first writes them.
  if (place_.dp != 0) return;
  WriteCheckpoint(assignment.artifact_root(), assignment.job_folder(), job_epoch);
}

void Trainer::WriteCheckpoint(const std::string& artifact_root, const std::string& job_folder,
                              uint32_t job_epoch) {
  checkpoint::Writer::Request request;
  request.stall_start = Clock::now();
  request.artifact_root = artifact_root;
  request.checkpoints_folder = (fs::path(job_folder) / "checkpoints").string();
  request.job_epoch = job_epoch;
  request.snapshot = checkpoint::TakeSnapshot(shard_->model.arena());
  request.snapshot.step = shard_->step;
  request.snapshot.updates = shard_->updates;
  request.snapshot.seed = plan_.seed;
  request.snapshot.tensor_rank = place_.tp;
  request.snapshot.tensor_degree = place_.tensor_degree;
  writer_.Write(std::move(request));
}

void Trainer::Finish(const v1::Assignment& assignment, Arrangement& arrangement) {
  events_.OnPhase(v1::PHASE_FINISHING);
  v1::Finished finished;
  if (place_.dp == 0) {
    const std::optional<checkpoint::FullTensors> full = MergeOverRow(place_, *shard_, arrangement);
    if (full.has_value()) {
      const fs::path folder = fs::path(assignment.job_folder()) / "export" /
                              fmt::format("e{}", arrangement.job_epoch());
      const absl::StatusOr<checkpoint::FileDigest> digest = checkpoint::ExportModel(
          (fs::path(assignment.artifact_root()) / folder).string(), shard_->model.parameters(),
          *full, DescribeModel(plan_, assignment));
      if (!digest.ok()) {
        throw FatalError("artifact_unwritable", std::string(digest.status().message()));
      }
      v1::Artifact& model = *finished.mutable_model();
      model.set_kind("model");
      model.set_path((folder / "model.safetensors").string());
      model.set_step(shard_->step);
      model.set_bytes(digest->bytes);
      model.set_sha256(digest->sha256);
    }
  }
  writer_.Flush();
  events_.OnFinished(finished);
}

}  // namespace tundish::trainer
