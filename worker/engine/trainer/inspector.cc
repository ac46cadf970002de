#include "worker/engine/trainer/inspector.h"

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include "worker/engine/checkpoint/digest.h"
#include "worker/engine/trainer/fatal_error.h"
#include "worker/engine/trainer/replica_check.h"
#include "worker/weights/atomic_file.h"

namespace tundish::trainer {

Inspector::Inspector(const TrainingPlan& plan, const Place& place, Shard& shard,
                     Arrangement& arrangement, device::Backend& backend, TrainerEvents& events,
                     TraceFolder folder)
    : plan_(plan),
      place_(place),
      shard_(shard),
      arrangement_(arrangement),
      backend_(backend),
      events_(events),
      folder_(std::move(folder)) {}

std::unique_ptr<observe::WatchScope> Inspector::BeginStep(uint32_t step, GradientReducer* reducer) {
  std::vector<observe::OperatorWatch*> watches;
  if (!shard_.proven) {
    precision_.emplace(backend_.device(), plan_.bf16 ? at::kBFloat16 : at::kFloat);
    precision_->set_active(false);
    watches.push_back(&*precision_);
  }
  if (plan_.Traced(step)) {
    if (!trace_) trace_ = std::make_shared<observe::TraceRecorder>(place_.dp, place_.tp);
    watches.push_back(trace_.get());
    if (reducer != nullptr) {
      // Buckets end on other threads, maybe after this arrangement.
      reducer->set_on_bucket([trace = trace_](size_t bytes, auto start, auto end) {
        trace->AddBucket(bytes, start, end);
      });
    }
  } else if (reducer != nullptr && step == plan_.trace_last + 1) {
    reducer->set_on_bucket(nullptr);
  }
  if (watches.empty()) return nullptr;
  return std::make_unique<observe::WatchScope>(std::move(watches));
}

void Inspector::BeginCompute() {
  if (precision_.has_value()) precision_->set_active(true);
}

void Inspector::EndCompute() {
  if (!precision_.has_value()) return;
  precision_->set_active(false);
  if (precision_->fault().has_value()) {
    throw FatalError(precision_->fault()->reason,
                     fmt::format("step {}, rank dp={} tp={}: {}", shard_.step, place_.dp, place_.tp,
                                 precision_->fault()->message));
  }
  shard_.proven = true;
  spdlog::debug("event=first_step_proven operators={} matmuls={} precision={} device={}",
                precision_->operators(), precision_->matmuls(),
                observe::TypeName(plan_.bf16 ? at::kBFloat16 : at::kFloat),
                backend_.device().str());
}

void Inspector::Phase(std::string_view name, uint32_t step,
                      std::chrono::steady_clock::time_point start,
                      std::chrono::steady_clock::time_point end) {
  if (trace_) trace_->AddPhase(name, step, start, end);
}

void Inspector::EndStep(const data::Batch& batch, uint64_t memory_bytes) {
  const uint32_t step = batch.step;
  precision_.reset();
  if (trace_ && (step == plan_.trace_last || step + 1 == plan_.total_steps)) WriteTrace(step);
  if (const auto growth = memory_.Observe(memory_bytes)) {
    v1::RankNotice notice;
    notice.set_type("memory_growth");
    notice.set_reason("memory_grows_with_steps");
    notice.set_message(
        fmt::format("rank dp={} tp={} held {} MiB {} steps ago and holds {} MiB "
                    "after step {}, caches left out: it may run out",
                    place_.dp, place_.tp, growth->from_bytes >> 20, growth->steps,
                    growth->to_bytes >> 20, step));
    events_.OnNotice(notice);
  }
  const uint32_t every = plan_.check_replicas_every_steps;
  const bool due = first_step_ || (every > 0 && (step + 1) % every == 0);
  first_step_ = false;
  if (due) CheckReplicas(plan_, place_, shard_, arrangement_, backend_, batch);
}

/// A profile that cannot be written costs the profile only.
void Inspector::WriteTrace(uint32_t step) {
  const std::shared_ptr<observe::TraceRecorder> trace = std::exchange(trace_, nullptr);
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(folder_.job_folder) / "traces";
  const fs::path file =
      folder / fmt::format("e{}-dp{}-tp{}.json", arrangement_.job_epoch(), place_.dp, place_.tp);
  const fs::path root(folder_.artifact_root);
  std::error_code error;
  fs::create_directories(root / folder, error);
  const std::string json = trace->ToJson();
  const absl::Status written = weights::WriteFileAtomically((root / file).string(), json);
  if (!written.ok()) {
    spdlog::error("event=trace_failed error=\"{}\"", std::string(written.message()));
    return;
  }
  v1::RankNotice notice;
  notice.set_type("artifact");
  notice.set_reason("trace_written");
  notice.set_message(
      fmt::format("the profile of rank dp={} tp={} is in {}", place_.dp, place_.tp, file.string()));
  v1::Artifact& artifact = *notice.mutable_artifact();
  artifact.set_kind("trace");
  artifact.set_path(file.string());
  artifact.set_step(step + 1);
  artifact.set_bytes(json.size());
  artifact.set_sha256(checkpoint::DigestBytes(std::as_bytes(std::span(json))));
  events_.OnNotice(notice);
}

}  // namespace tundish::trainer
