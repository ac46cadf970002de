#include "worker/engine/checkpoint/writer.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "worker/engine/checkpoint/digest.h"

namespace tundish::checkpoint {
namespace {

namespace fs = std::filesystem;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string FolderName(uint32_t job_epoch, uint32_t step) {
  return fmt::format("e{}-step{}", job_epoch, step);
}

Writer::Writer(std::function<void(uint32_t, const v1::CheckpointWritten&)> written)
    : written_(std::move(written)), thread_([this] { Loop(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Writer::Write(Request request) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return interrupted_ || (!busy_ && !pending_.has_value()); });
  if (interrupted_) return;
  pending_stall_seconds_ = SecondsSince(request.stall_start);
  pending_ = std::move(request);
  changed_.notify_all();
}

void Writer::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return interrupted_ || (!busy_ && !pending_.has_value()); });
}

void Writer::Interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
}

void Writer::Resume() {
  const std::lock_guard lock(mutex_);
  interrupted_ = false;
}

void Writer::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || pending_.has_value(); });
    if (!pending_.has_value()) return;
    const Request request = std::move(*pending_);
    const double stall_seconds = pending_stall_seconds_;
    pending_.reset();
    busy_ = true;
    lock.unlock();
    Handle(request, stall_seconds);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Writer::Handle(const Request& request, double stall_seconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::string shard = ShardName(request.snapshot.tensor_rank);
  const fs::path relative =
      fs::path(request.checkpoints_folder) / FolderName(request.job_epoch, request.snapshot.step);
  const fs::path folder = fs::path(request.artifact_root) / relative;
  absl::Status status = WriteShard(folder.string(), request.snapshot);
  absl::StatusOr<FileDigest> digest =
      status.ok() ? DigestFile((folder / shard).string()) : absl::StatusOr<FileDigest>(status);
  if (!digest.ok()) {
    spdlog::error("event=checkpoint_failed step={} error=\"{}\"", request.snapshot.step,
                  std::string(digest.status().message()));
    return;
  }
  v1::CheckpointWritten written;
  written.set_step(request.snapshot.step);
  written.set_path(relative.string());
  written.set_shard(shard);
  written.set_bytes(digest->bytes);
  written.set_sha256(digest->sha256);
  written.set_stall_seconds(stall_seconds);
  written.set_write_seconds(SecondsSince(start));
  written_(request.job_epoch, written);
}

}  // namespace tundish::checkpoint
