#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/ulid.h"
#include "server/jobs/core.h"

// A job's files: what there is, and how to get at them where only agents see them.
namespace tundish::jobs {
namespace {

constexpr std::chrono::seconds kReadLimit{10};

}  // namespace

absl::StatusOr<v1::ListArtifactsResponse> Core::ListArtifacts(std::string_view job_id) const {
  const absl::StatusOr<Job*> job = Find(job_id);
  if (!job.ok()) return job.status();
  v1::ListArtifactsResponse response;
  const auto add = [&response](std::string path, const char* kind, uint32_t step) {
    v1::ArtifactFile* file = response.add_files();
    file->set_path(std::move(path));
    file->set_kind(kind);
    file->set_step(step);
    return file;
  };
  for (const v1::Artifact& artifact : (*job)->record.artifacts()) {
    v1::ArtifactFile* file = add(artifact.path(), "model", artifact.step());
    file->set_bytes(artifact.bytes());
    file->set_sha256(artifact.sha256());
    const std::string folder = artifact.path().substr(0, artifact.path().rfind('/') + 1);
    add(folder + "config.json", "config", artifact.step());
  }
  for (const v1::CheckpointRecord& checkpoint : (*job)->checkpoints) {
    for (const v1::CheckpointShard& shard : checkpoint.shards()) {
      v1::ArtifactFile* file = add(checkpoint.artifact().path() + "/" + shard.file(), "checkpoint",
                                   checkpoint.artifact().step());
      file->set_bytes(shard.bytes());
      file->set_sha256(shard.sha256());
    }
  }
  std::ranges::sort(*response.mutable_files(), {},
                    [](const v1::ArtifactFile& file) { return file.path(); });
  return response;
}

std::vector<std::string> Core::NodesNearFiles(std::string_view job_id) {
  std::vector<std::string> near;
  const auto add = [&](const std::string& name) {
    const Node* node = nodes_.Find(name);
    if (node == nullptr || !node->ready() || std::ranges::count(near, name) > 0) return;
    near.push_back(name);
  };
  if (const absl::StatusOr<Job*> job = Find(job_id); job.ok()) {
    for (const v1::Member& member : (*job)->arrangement.members()) add(member.node());
  }
  for (const auto& [name, node] : nodes_.nodes()) add(name);
  return near;
}

void Core::ReadFile(const std::string& node_name, v1::ReadFile request, FileRead done) {
  const Node* node = nodes_.Find(node_name);
  const Now now = parts_.clock();
  if (closed_ || node == nullptr || !node->ready()) {
    return done(absl::UnavailableError(
        fmt::format("node '{}', which sees the files, is away; try again", node_name)));
  }
  request.set_read_id(NewUlid(now.wall));
  const std::string id = request.read_id();
  reads_[id] = {node_name, now.steady + kReadLimit, std::move(done)};
  v1::CoordinatorMessage message;
  *message.mutable_read_file() = std::move(request);
  SendOrder({node_name, std::move(message)});
}

void Core::OnFileChunk(const v1::FileChunk& chunk) {
  const auto found = reads_.find(chunk.read_id());
  if (found == reads_.end()) return;  // its limit has passed
  const FileRead done = std::move(found->second.done);
  reads_.erase(found);
  if (chunk.error().empty()) return done(chunk);
  const int code = static_cast<int>(chunk.code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  done(absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                    chunk.error()));
}

void Core::FailReads(const std::function<bool(const PendingRead&)>& fails,
                     const std::string& reason) {
  std::vector<PendingRead> failed;
  std::erase_if(reads_, [&](auto& entry) {
    if (!fails(entry.second)) return false;
    failed.push_back(std::move(entry.second));
    return true;
  });
  for (const PendingRead& read : failed) {
    read.done(absl::UnavailableError(fmt::format("node '{}' {}; try again", read.node, reason)));
  }
}

}  // namespace tundish::jobs
