#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "server/store/store.h"

namespace tundish::store {

/// An empty folder that goes away with its owner.
class Scratch {
 public:
  Scratch() {
    std::string pattern = testing::TempDir() + "tundish-store-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  std::filesystem::path database() const { return folder_ / "tundish.db"; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

inline v1::JobUpdate Update(std::uint32_t seq, std::size_t padding = 0) {
  v1::JobUpdate update;
  update.set_seq(seq);
  update.mutable_event()->set_type("state_changed");
  update.mutable_event()->set_message(std::string(padding, 'x'));
  return update;
}

/// Update `seq` and progress `seq`: one must never be there without the other.
inline WriteBatch Step(const std::string& job_id, std::uint32_t seq, std::size_t padding = 0) {
  WriteBatch batch;
  v1::JobProgress progress;
  progress.set_job_id(job_id);
  progress.set_step(seq);
  progress.set_last_seq(seq);
  batch.AppendUpdate(job_id, Update(seq, padding));
  batch.PutProgress(progress);
  return batch;
}

inline WriteBatch NewJob(const std::string& job_id) {
  WriteBatch batch;
  v1::Job job;
  job.set_job_id(job_id);
  job.set_state(v1::PENDING);
  batch.PutJob(job);
  return batch;
}

/// Commits and waits for the answer.
inline absl::Status CommitNow(Store& store, WriteBatch batch) {
  absl::Status result = absl::UnknownError("not answered");
  store.Commit(std::move(batch), [&](absl::Status status) { result = std::move(status); });
  store.Flush();
  return result;
}

}  // namespace tundish::store
